"""Signals: a call waits for an external event and gets its payload once, in either order."""

import asyncio
from typing import Any

import pytest

from app.clock import new_id, sleep
from app.commands.tickets import send_signal
from app.commands.tickets.decide import decide
from app.commands.tickets.deliver_signal import complete
from app.commands.tickets.match_signal import match_wait
from app.commands.tickets.send_signal import NewSignal, send
from app.domain.agents.specs import ToolExecution
from app.domain.errors import Conflict, EventTimedOut, EventWaitInvalid, Forbidden, Invalid, TooMany
from app.domain.ids import CallId, Tenant
from app.domain.json_values import Json
from app.domain.principals import DEFAULT_TENANT, Principal, Scope
from app.domain.runs.runs import RunStatus, Waiting, WaitingReason
from app.domain.signals import (
    MAX_KEPT_PER_KEY,
    Signal,
    SignalOutcome,
    SignalStatus,
    StoredSignal,
)
from app.domain.slices import PageRequest
from app.domain.structs import replace
from app.domain.threads.messages import Role
from app.domain.tickets.tickets import TicketFilter, TicketKind, TicketStatus
from app.domain.tools.tool_calls import SuspensionRequest
from app.llm.scripted.model import Call, in_order, turn
from app.queries.explain import explain
from app.queries.explain_reasons import ReasonCode
from app.queries.inbox import list_tickets
from app.runtime.plugins import HookView, Phase, Request, Suspend, WaitFor
from app.runtime.ports.tool_context import ToolContext
from app.runtime.state import StateKey
from app.storage.postgres.database import Database
from app.storage.runs.runs import RunKey
from app.storage.tickets import signals
from app.tools.functions.decorator import tool
from tests.support.hooks import Hooks
from tests.support.probes import Probe
from tests.support.replicas import (
    ANN,
    Replica,
    Run,
    an_agent,
    decision,
    of_type,
    open_replica,
    types_of,
)

pytestmark = pytest.mark.anyio

NAME, KEY = "payment_settled", "inv-7"


class WaitingTool:
    """A tool that waits for a number of events and returns their payloads."""

    def __init__(
        self,
        events: int = 1,
        *,
        key: str = KEY,
        schema: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> None:
        self.runs = 0
        self.got: list[Json] = []

        @tool(name="waits", effect="idempotent")
        async def waits(ctx: ToolContext, key: str = key) -> Any:
            self.runs += 1
            try:
                got = [
                    await ctx.wait_for(NAME, key, schema=schema, timeout=timeout)
                    for _ in range(events)
                ]
            except EventTimedOut as late:
                return f"late: {late}"
            self.got = got
            return {"got": got}

        self.tool = waits

    @staticmethod
    def call(id: str = "c1", **arguments: Any) -> Call:
        return Call(tool="waits", arguments=arguments, id=CallId(id))


async def sent(
    replica: Replica,
    payload: Json = None,
    *,
    id: str | None = None,
    key: str = KEY,
    by: Principal = ANN,
) -> StoredSignal:
    new = NewSignal(id=id or new_id(), name=NAME, key=key, payload=payload)
    return await send(replica.ctx, by, new)


async def results(run: Run) -> list[str]:
    """The last text of each call in the log."""
    last = {
        entry.message.tool_call_id: entry.message.text
        for entry in await run.log()
        if entry.message.role is Role.TOOL
    }
    return list(last.values())


# --- waiting --------------------------------------------------------------------------------------


async def test_a_call_waits_for_an_event_and_gets_its_payload(database_url: str) -> None:
    waits = WaitingTool()
    script = in_order(turn(waits.call()), turn("done"))
    async with open_replica(database_url, an_agent(waits.tool), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        state = (await run.now()).state
        answered = await sent(replica, {"amount": 80}, id="s1")
        emitted = await run.finished(2)
        [ticket] = await run.tickets()
        assert await results(run) == ['{"got":[{"amount":80}]}']
    assert state == Waiting(WaitingReason.EXTERNAL_EVENT, "awaiting_event")
    assert (waits.runs, waits.got) == (2, [{"amount": 80}])
    assert answered.response_status is SignalStatus.ANSWERED
    assert [(one.ticket, one.outcome.value) for one in answered.tickets] == [
        (ticket.id, "answered")
    ]
    opened = of_type(emitted, "ticket_opened")[0]["ticket"]
    assert (opened["kind"], opened["event"]) == ("event", {"name": NAME, "key": KEY})
    assert opened["allowed_actions"] == ["cancel", "respond"]
    decided = of_type(emitted, "ticket_decided")[0]
    assert (decided["action"], decided["decision_id"]) == ("respond", "signal:s1")
    assert emitted[-1]["termination"] == {"type": "natural_end"}


async def test_each_wait_of_a_call_gets_a_signal_of_its_own(database_url: str) -> None:
    """The code before a wait runs again, and each answered wait returns its payload again."""
    waits = WaitingTool(3)
    script = in_order(turn(waits.call()), turn("done"))
    async with open_replica(database_url, an_agent(waits.tool), script) as replica:
        run = await replica.start()
        for number in range(3):
            await run.finished(number + 1)
            await sent(replica, number)
        await run.finished(4)
        names = [ticket.event for ticket in await run.tickets()]
    assert waits.got == [0, 1, 2]
    assert waits.runs == 4
    assert [wait.number for wait in names if wait is not None] == [0, 1, 2]


async def test_a_wait_that_is_not_answered_in_time_raises_in_the_tool(database_url: str) -> None:
    waits = WaitingTool(timeout=0.3)
    script = in_order(turn(waits.call()), turn("done"))
    async with open_replica(database_url, an_agent(waits.tool), script) as replica:
        run = await replica.start()
        emitted = await run.finished(2)
        [ticket] = await run.tickets()
        assert await results(run) == [
            f"late: The event '{NAME}' with the key '{KEY}' did not come in time"
        ]
        after = await sent(replica, "too late")
    assert ticket.status is TicketStatus.EXPIRED
    assert after.response_status is SignalStatus.KEPT
    assert "ticket_reminder" not in types_of(emitted)
    assert emitted[-1]["termination"] == {"type": "natural_end"}


async def test_a_wait_that_no_signal_could_answer_is_an_error_of_the_tool(
    database_url: str,
) -> None:
    @tool(effect="read")
    async def wrong(ctx: ToolContext, what: str) -> Any:
        waits = {
            "name": lambda: ctx.wait_for("", KEY),
            "key": lambda: ctx.wait_for(NAME, "k" * 501),
            "timeout": lambda: ctx.wait_for(NAME, KEY, timeout=0),
            "schema": lambda: ctx.wait_for(NAME, KEY, schema={"type": "nothing"}),
        }
        try:
            return await waits[what]()
        except EventWaitInvalid as error:
            return f"refused {what}: {error}"

    calls = [
        Call(tool="wrong", arguments={"what": what}, id=CallId(what))
        for what in ("name", "key", "timeout", "schema")
    ]
    async with open_replica(
        database_url, an_agent(wrong), in_order(turn(*calls), turn("done"))
    ) as replica:
        run = await replica.start()
        await run.finished()
        texts = await results(run)
        assert await run.tickets() == []
    assert [text.split(":")[0] for text in texts] == [
        f"refused {what}" for what in ("name", "key", "timeout", "schema")
    ]


async def test_a_tool_may_wait_within_a_task_group(database_url: str) -> None:
    @tool(name="waits", effect="idempotent")
    async def waits(ctx: ToolContext) -> Any:
        async with asyncio.TaskGroup() as group:
            both = [group.create_task(ctx.wait_for(NAME, key)) for key in ("a", "b")]
        return [each.result() for each in both]

    script = in_order(turn(WaitingTool.call()), turn("done"))
    async with open_replica(database_url, an_agent(waits), script) as replica:
        await sent(replica, "B", key="b")
        run = await replica.start()
        await run.finished()
        await sent(replica, "A", key="a")
        await run.ended()
        assert await results(run) == ['["A","B"]']


async def test_state_changes_of_a_tool_before_a_wait_are_applied_once(database_url: str) -> None:
    """A call that waits saves no state changes, because it runs again."""
    key: StateKey[int, int] = StateKey("seen", lambda: 0, lambda value, update: value + update)
    plugin = Hooks({}, keys=[key]).plugin

    @tool(name="waits", effect="idempotent")
    async def waits(ctx: ToolContext) -> Any:
        ctx.update(key, 1)
        return await ctx.wait_for(NAME, KEY)

    script = in_order(turn(WaitingTool.call()), turn("done"))
    async with open_replica(database_url, an_agent(waits, plugins=[plugin]), script) as replica:
        run = await replica.start()
        await run.finished()
        await sent(replica)
        emitted = await run.finished(2)
    assert of_type(emitted, "state_snapshot")[-1]["snapshot"]["extensions"]["seen"] == 1


async def test_parallel_calls_wait_for_events_of_their_own(database_url: str) -> None:
    waits = WaitingTool()
    script = in_order(turn(waits.call("c1", key="a"), waits.call("c2", key="b")), turn("done"))
    agent = an_agent(waits.tool, tool_execution=ToolExecution.PARALLEL)
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        assert len(await run.tickets()) == 2
        await sent(replica, 2, key="b")
        await sent(replica, 1, key="a")
        await run.ended()
        assert await results(run) == ['{"got":[1]}', '{"got":[2]}']


# --- signals --------------------------------------------------------------------------------------


async def test_a_signal_answers_every_ticket_that_waits_for_it(database_url: str) -> None:
    waits = WaitingTool()
    script = in_order(*[turn(waits.call())] * 3, *[turn("done")] * 3)
    async with open_replica(database_url, an_agent(waits.tool), script) as replica:
        runs = [await replica.start() for _ in range(3)]
        for run in runs:
            await run.finished()
        answered = await sent(replica, "paid")
        for run in runs:
            await run.finished(2)
        assert {one.run_id for one in answered.tickets} == {run.id for run in runs}
        assert {one.outcome.value for one in answered.tickets} == {"answered"}


async def test_a_repeated_signal_id_is_delivered_once_and_gets_the_same_answer(
    database_url: str,
) -> None:
    waits = WaitingTool(2)
    script = in_order(turn(waits.call()), turn("done"))
    async with open_replica(database_url, an_agent(waits.tool), script) as replica:
        run = await replica.start()
        await run.finished()
        first = await sent(replica, "one", id="s1")
        await run.finished(2)
        again = await sent(replica, "one", id="s1")
        with pytest.raises(Conflict) as other_payload:
            await sent(replica, "two", id="s1")
        with pytest.raises(Conflict) as other_key:
            await sent(replica, "one", id="s1", key="inv-8")
        assert (await run.now()).status is RunStatus.WAITING
        assert len(await run.tickets()) == 2
    assert again == first
    assert (other_payload.value.code, other_key.value.code) == ("signal_id_conflict",) * 2


async def test_concurrent_signals_with_one_id_are_delivered_once(database_url: str) -> None:
    waits = WaitingTool(2)
    script = in_order(turn(waits.call()), turn("done"))
    async with open_replica(database_url, an_agent(waits.tool), script) as replica:
        run = await replica.start()
        await run.finished()
        answers = await asyncio.gather(*(sent(replica, "one", id="s1") for _ in range(8)))
        await run.finished(2)
        opened = await run.tickets()
    assert {one.response_status for one in answers} == {SignalStatus.ANSWERED}
    assert len({one.tickets for one in answers}) == 1
    assert [ticket.status for ticket in opened] == [TicketStatus.DECIDED, TicketStatus.OPEN]


async def test_a_signal_sent_before_the_wait_is_stored_for_one_wait(database_url: str) -> None:
    waits = WaitingTool()
    script = in_order(turn(waits.call()), turn("done"), turn(waits.call()))
    async with open_replica(database_url, an_agent(waits.tool), script) as replica:
        early = await sent(replica, "early", id="s1")
        run = await replica.start()
        await run.ended()
        assert waits.got == ["early"]
        again = await sent(replica, "early", id="s1")
        other = await replica.start()
        await other.finished()
        assert (await other.now()).status is RunStatus.WAITING
    assert (early.response_status, early.tickets) == (SignalStatus.KEPT, ())
    assert again.response_status is SignalStatus.KEPT


async def test_stored_signals_are_taken_in_the_order_of_their_arrival(database_url: str) -> None:
    waits = WaitingTool(3)
    script = in_order(turn(waits.call()), turn("done"))
    async with open_replica(database_url, an_agent(waits.tool), script) as replica:
        for number in range(3):
            await sent(replica, number)
        run = await replica.start()
        await run.ended()
    assert waits.got == [0, 1, 2]


async def test_an_expired_stored_signal_is_not_taken(database: Database, database_url: str) -> None:
    waits = WaitingTool()
    async with open_replica(
        database_url, an_agent(waits.tool), in_order(turn(waits.call()))
    ) as replica:
        await sent(replica, "old")
        await database.pool.execute("UPDATE signals SET kept_until = now()")
        run = await replica.start()
        await run.finished()
        async with database.transaction() as connection:
            assert await signals.delete_old(connection, 3600, 10) == 0
            assert await signals.delete_old(connection, 0, 10) == 1
        assert (await run.now()).status is RunStatus.WAITING


async def test_the_number_of_stored_signals_for_one_key_is_bounded(database_url: str) -> None:
    async with open_replica(database_url, an_agent(WaitingTool().tool), in_order()) as replica:
        for number in range(MAX_KEPT_PER_KEY):
            await sent(replica, number)
        with pytest.raises(TooMany) as full:
            await sent(replica, "one more")
        other = await sent(replica, "of another key", key="inv-8")
    assert full.value.code == "queue_full"
    assert other.response_status is SignalStatus.KEPT


# --- payloads -------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}


async def test_a_payload_that_fits_no_ticket_is_refused_and_changes_nothing(
    database_url: str,
) -> None:
    waits = WaitingTool(schema=SCHEMA)
    script = in_order(turn(waits.call()), turn("done"))
    async with open_replica(database_url, an_agent(waits.tool), script) as replica:
        run = await replica.start()
        await run.finished()
        with pytest.raises(Invalid) as refused:
            await sent(replica, {"amount": "much"}, id="s1")
        assert (await run.now()).status is RunStatus.WAITING
        await sent(replica, {"amount": 80}, id="s1")
        await run.finished(2)
    assert refused.value.code == "signal_payload_mismatch"
    assert "amount" in refused.value.detail
    assert waits.got == [{"amount": 80}]


async def test_a_payload_answers_the_tickets_whose_schema_it_fits(database_url: str) -> None:
    strict = WaitingTool(schema=SCHEMA)
    loose = WaitingTool()
    async with (
        open_replica(database_url, an_agent(strict.tool), in_order(turn(strict.call()))) as one,
        open_replica(
            database_url, an_agent(loose.tool, id="loose"), in_order(turn(loose.call()), turn("k"))
        ) as other,
    ):
        waiting, fitting = await one.start(), await other.start()
        await waiting.finished()
        await fitting.finished()
        answered = await sent(one, "anything")
        await fitting.finished(2)
        assert (await waiting.now()).status is RunStatus.WAITING
    by_run = {each.run_id: each for each in answered.tickets}
    assert by_run[fitting.id].outcome.value == "answered"
    assert by_run[waiting.id].outcome.value == "payload_mismatch"
    assert by_run[waiting.id].problem


async def test_a_stored_signal_that_does_not_fit_stays_for_another_ticket(
    database_url: str,
) -> None:
    waits = WaitingTool(schema=SCHEMA)
    script = in_order(turn(waits.call()), turn("done"))
    async with open_replica(database_url, an_agent(waits.tool), script) as replica:
        await sent(replica, "odd", id="odd")
        await sent(replica, {"amount": 1}, id="fits")
        run = await replica.start()
        await run.ended()
        async with replica.database.reading() as connection:
            odd = await signals.find(connection, DEFAULT_TENANT, "odd")
            fits = await signals.find(connection, DEFAULT_TENANT, "fits")
    assert waits.got == [{"amount": 1}]
    assert odd is not None
    assert odd.status is SignalStatus.KEPT
    assert fits is not None
    assert fits.status is SignalStatus.ANSWERED


# --- crashes and races ----------------------------------------------------------------------------


async def test_a_signal_that_is_committed_while_a_ticket_is_being_opened_is_found(
    database_url: str, database: Database
) -> None:
    """The checkpoint has read its run but not committed, so the signal finds no ticket and is stored."""
    waits = WaitingTool()
    script = in_order(turn(waits.call()), turn("done"))
    async with open_replica(database_url, an_agent(waits.tool), script) as replica:
        async with database.transaction() as connection:
            await signals.lock_key(connection, DEFAULT_TENANT, NAME, KEY)
            run = await replica.start()
            await _until_transactions_wait(database, 1)
            assert await signals.waiting_for(connection, DEFAULT_TENANT, NAME, KEY) == []
            await signals.add(connection, _signal("between"), SignalStatus.KEPT, kept_for=60)
        await run.ended()
    assert waits.got == ["between"]


async def test_a_ticket_that_is_being_opened_while_a_signal_is_sent_is_answered(
    database_url: str, database: Database
) -> None:
    """The signal waits for the checkpoint's lock and then finds the committed ticket."""
    waits = WaitingTool()
    script = in_order(turn(waits.call()), turn("done"))
    async with open_replica(database_url, an_agent(waits.tool), script) as replica:
        async with asyncio.TaskGroup() as group:
            async with database.transaction() as connection:
                await signals.lock_key(connection, DEFAULT_TENANT, NAME, KEY)
                run = await replica.start()
                await _until_transactions_wait(database, 1)
                second = group.create_task(sent(replica, "second"))
                await _until_transactions_wait(database, 2)
            await run.ended()
        [ticket] = second.result().tickets
    assert ticket.outcome is SignalOutcome.ANSWERED
    assert waits.got == ["second"]


async def test_no_signal_is_lost_at_any_time_of_sending(database_url: str) -> None:
    waits = WaitingTool()
    runs = 8
    script = in_order(
        *[turn(waits.call("c1", key=f"k{n}")) for n in range(runs)], *[turn("x")] * runs
    )
    async with open_replica(database_url, an_agent(waits.tool), script, slots=runs) as replica:
        started = []
        async with asyncio.TaskGroup() as group:
            for number in range(runs):
                started.append(await replica.start())
                group.create_task(_sent_after(replica, 0.004 * (number % 6), number))
        for run in started:
            await run.ended()
        for run in started:
            assert [ticket.status for ticket in await run.tickets()] == [TicketStatus.DECIDED]
    assert waits.runs == 2 * runs


async def _sent_after(replica: Replica, seconds: float, number: int) -> None:
    await sleep(seconds)
    await sent(replica, number, key=f"k{number}")


async def _until_transactions_wait(database: Database, count: int) -> None:
    """Waits until `count` transactions wait for an advisory lock."""
    async with asyncio.timeout(60):
        while count > await database.pool.fetchval(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        ):
            await sleep(0.01)


def _signal(payload: Json, id: str = "s1") -> Signal:
    return Signal(tenant=DEFAULT_TENANT, id=id, name=NAME, key=KEY, payload=payload, sent_by="ann")


async def test_a_signal_whose_process_died_before_it_answered_is_completed(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal is stored with its matching tickets, and the queued job answers them."""
    waits = WaitingTool()
    script = in_order(turn(waits.call()), turn("done"))

    async def crashes(*_: Any) -> bool:
        raise ConnectionError("as by kill -9")

    async with open_replica(database_url, an_agent(waits.tool), script) as replica:
        run = await replica.start()
        await run.finished()
        with monkeypatch.context() as patch:
            patch.setattr(send_signal, "complete", crashes)
            patch.setattr(send_signal, "JOB_DELAY_SECONDS", 0.5)
            with pytest.raises(ConnectionError):
                await sent(replica, "paid", id="s1")
        await run.finished(2)
        again = await sent(replica, "paid", id="s1")
    assert waits.got == ["paid"]
    assert again.response_status is SignalStatus.ANSWERED


async def test_a_repeated_request_completes_the_signal_of_a_dead_process(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = WaitingTool()
    script = in_order(turn(waits.call()), turn("done"))

    async def crashes(*_: Any) -> bool:
        raise ConnectionError("as by kill -9")

    async with open_replica(database_url, an_agent(waits.tool), script) as replica:
        run = await replica.start()
        await run.finished()
        with monkeypatch.context() as patch:
            patch.setattr(send_signal, "complete", crashes)
            patch.setattr(send_signal, "JOB_DELAY_SECONDS", 3600.0)
            with pytest.raises(ConnectionError):
                await sent(replica, "paid", id="s1")
        assert (await run.now()).status is RunStatus.WAITING
        again = await sent(replica, "paid", id="s1")
        await run.finished(2)
    assert again.response_status is SignalStatus.ANSWERED
    assert [one.outcome.value for one in again.tickets] == ["answered"]


async def test_a_signal_whose_tickets_were_decided_meanwhile_is_stored(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ticket that was opened meanwhile takes the signal."""
    waits = WaitingTool()
    script = in_order(turn(waits.call()), turn("x"), turn(waits.call()), turn("done"))
    async with open_replica(database_url, an_agent(waits.tool), script) as replica:
        run = await replica.start()
        await run.finished()
        with monkeypatch.context() as patch:
            patch.setattr(send_signal, "complete", _does_nothing)
            await sent(replica, "paid", id="s1")
        await run.decide("c1", "cancel")
        await run.ended()
        other = await replica.start()
        await other.finished()
        assert (await other.now()).status is RunStatus.WAITING
        assert await complete(replica.ctx, DEFAULT_TENANT, "s1")
        await other.ended()
        stored = await sent(replica, "paid", id="s1")
    assert waits.got == ["paid"]
    assert stored.response_status is SignalStatus.KEPT
    assert [one.outcome.value for one in stored.tickets] == ["already_decided"]


async def _does_nothing(*_: Any) -> bool:
    return True


async def test_a_payload_is_delivered_again_after_the_death_of_its_worker(
    database_url: str,
) -> None:
    """The tool runs again with the same payload, because its effect allows it."""
    got: list[Json] = []
    reached = asyncio.Event()

    @tool(name="waits", effect="idempotent")
    async def waits(ctx: ToolContext) -> Any:
        payload = await ctx.wait_for(NAME, KEY)
        got.append(payload)
        reached.set()
        if len(got) == 1:
            await asyncio.Event().wait()
        return payload

    script = in_order(turn(WaitingTool.call()), turn("done"))
    catalog = an_agent(waits)
    async with (
        open_replica(database_url, catalog, script) as first,
        open_replica(database_url, catalog, script) as second,
    ):
        await second.take_nothing_new()
        run = await first.start()
        await run.finished()
        await sent(first, "paid")
        await reached.wait()
        await first.kill()
        async with open_replica(database_url, catalog, script) as third:
            again = third.same(run)
            await again.ended()
            assert await results(again) == ["paid"]
            assert len(await again.tickets()) == 1
    assert got == ["paid", "paid"]


# --- scopes, the inbox and explain ----------------------------------------------------------------

APPROVER = Principal(DEFAULT_TENANT, "bob", frozenset({Scope.DECISIONS_WRITE, Scope.RUNS_READ}))


async def test_a_person_needs_the_scope_of_signals_to_respond(database_url: str) -> None:
    waits = WaitingTool()
    script = in_order(turn(waits.call()), turn("done"))
    async with open_replica(database_url, an_agent(waits.tool), script) as replica:
        run = await replica.start()
        await run.finished()
        with pytest.raises(Forbidden) as forbidden:
            await decide(replica.ctx, APPROVER, run.id, [decision("c1", "respond", result=1)])
        for action in ("approve", "reject"):
            with pytest.raises(Invalid) as not_allowed:
                await run.decide("c1", action)
            assert not_allowed.value.code == "action_not_allowed"
        await run.decide("c1", "respond", result="by hand")
        await run.ended()
    assert forbidden.value.code == "scope_missing"
    assert waits.got == ["by hand"]


async def test_an_approver_may_cancel_a_call_that_waits(database_url: str) -> None:
    waits = WaitingTool()
    script = in_order(turn(waits.call()), turn("done"))
    async with open_replica(database_url, an_agent(waits.tool), script) as replica:
        run = await replica.start()
        await run.finished()
        await decide(replica.ctx, APPROVER, run.id, [decision("c1", "cancel", reason="no")])
        await replica.worker.claim_and_launch(*_delivery(await run.now()))
        await run.ended()
    assert (waits.runs, waits.got) == (1, [])


def _delivery(record: Any) -> tuple[Any, str]:
    return RunKey(record.tenant, record.thread_id, record.id, record.attempt), new_id()


async def test_signals_need_their_own_scope(database_url: str) -> None:
    without_signals = Principal(
        DEFAULT_TENANT, "eve", frozenset(set(Scope) - {Scope.SIGNALS_WRITE, Scope.ADMIN})
    )
    async with open_replica(database_url, an_agent(WaitingTool().tool), in_order()) as replica:
        with pytest.raises(Forbidden):
            await sent(replica, by=without_signals)


async def test_a_signal_answers_no_ticket_of_another_tenant(database_url: str) -> None:
    other_principal = Principal(Tenant("other"), "eve", frozenset(Scope))
    waits = WaitingTool()
    async with open_replica(
        database_url, an_agent(waits.tool), in_order(turn(waits.call()))
    ) as replica:
        run = await replica.start()
        await run.finished()
        of_other_tenant = await sent(replica, "theirs", id="s1", by=other_principal)
        ours = await sent(replica, "ours", id="s1")
        await run.finished(2)
    assert (of_other_tenant.response_status, of_other_tenant.tickets) == (SignalStatus.KEPT, ())
    assert ours.response_status is SignalStatus.ANSWERED
    assert waits.got == ["ours"]


async def test_the_inbox_leaves_out_tickets_that_wait_for_events(
    database_url: str, database: Database
) -> None:
    waits, probe = WaitingTool(), Probe()
    script = in_order(turn(probe.call("c1"), waits.call("c2")))
    agent = an_agent(
        waits.tool, probe.tool, approval=["probe"], tool_execution=ToolExecution.PARALLEL
    )
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        assert (await run.now()).state == Waiting(WaitingReason.TOOL_PERMISSION, "suspended")
        shown = await list_tickets(replica.ctx, ANN, TicketFilter(), PageRequest())
        events = await list_tickets(
            replica.ctx, ANN, TicketFilter(kind=TicketKind.EVENT), PageRequest()
        )
        feed = await database.pool.fetchval("SELECT count(*) FROM ticket_feed")
    assert [each.ticket.kind for each in shown] == [TicketKind.APPROVAL]
    assert [each.ticket.kind for each in events] == [TicketKind.EVENT]
    assert feed == 1


async def test_explain_names_the_awaited_event(database_url: str) -> None:
    waits = WaitingTool(timeout=3600)
    async with open_replica(
        database_url, an_agent(waits.tool), in_order(turn(waits.call()))
    ) as replica:
        run = await replica.start()
        await run.finished()
        found = await explain(replica.ctx, ANN, run.id)
    [reason] = found.reasons
    assert reason.code is ReasonCode.WAITING_FOR_EVENT
    assert f"the event '{NAME}' with the key '{KEY}' until 2" in reason.text
    assert [ticket.kind for ticket in found.waiting_on] == [TicketKind.EVENT]


# --- hooks ----------------------------------------------------------------------------------------


class EventGate:
    """A hook that lets a call wait for an event and records the received payloads."""

    def __init__(self, **more: Any) -> None:
        self.received: list[Json] = []
        self.hooks = Hooks({Phase.TOOL_GATE: self._wait}, name="gate")
        self._more = more

        async def hook(view: HookView) -> list[Request]:
            received = await view.received(NAME, KEY)
            if received is not None:
                self.received.append(received.payload)
            return [WaitFor(name=NAME, key=KEY, **more)]

        self.plugin = replace(self.hooks.plugin, hooks={Phase.TOOL_GATE: hook})

    def _wait(self, _: HookView) -> list[Request]:
        return []


async def test_a_hook_lets_a_call_wait_for_an_event(database_url: str) -> None:
    """A repeated request for a received event lets the call pass, so the gate can't wait for ever."""
    gate, probe = EventGate(), Probe()
    script = in_order(turn(probe.call("c1")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, plugins=[gate.plugin]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        assert (await run.now()).state == Waiting(WaitingReason.EXTERNAL_EVENT, "awaiting_event")
        assert len(probe.handed) == 0
        await sent(replica, {"open": True})
        await run.ended()
    assert len(probe.handed) == 1
    assert gate.received == [{"open": True}]


async def test_an_event_does_not_count_as_an_approval(database_url: str) -> None:
    """When the gate is called again after an event, the call still counts as not approved."""
    seen: list[bool] = []

    def gate(view: HookView) -> list[Request]:
        seen.append(view.was_approved)
        wait = WaitFor(name=NAME, key=KEY)
        if len(seen) == 1 or view.was_approved:
            return [wait]
        return [wait, Suspend(SuspensionRequest("Now?"))]

    hooks, probe = Hooks({Phase.TOOL_GATE: gate}), Probe()
    script = in_order(turn(probe.call("c1")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, plugins=[hooks.plugin]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        await sent(replica)
        emitted = await run.finished(2)
        assert (len(probe.handed), emitted[-1]["waiting"]["reason"]) == (0, "tool_permission")
        [waiting] = emitted[-1]["waiting"]["tickets"]
        assert of_type(emitted, "ticket_opened")[-1]["ticket"]["kind"] == "approval"
        await run.decide(waiting["id"], "approve")
        await run.ended()
    assert seen == [False, False, True]
    assert len(probe.handed) == 1


async def test_an_approval_stays_valid_after_the_event(database_url: str) -> None:
    """The tool waits after its approval, and no second approval is requested."""
    waits = WaitingTool()
    script = in_order(turn(waits.call()), turn("done"))
    async with open_replica(
        database_url, an_agent(waits.tool, approval=["waits"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("perm_c1", "approve")
        await run.finished(2)
        await sent(replica, "paid")
        await run.finished(3)
        assert (await run.now()).status is RunStatus.DONE
    assert waits.got == ["paid"]


async def test_a_tool_that_suspends_and_then_waits_keeps_its_answer(database_url: str) -> None:
    @tool(name="waits", effect="idempotent")
    async def waits(ctx: ToolContext) -> Any:
        if ctx.resume_input is None:
            return ctx.suspend("Which account?")
        return [ctx.resume_input, await ctx.wait_for(NAME, KEY)]

    script = in_order(turn(WaitingTool.call()), turn("done"))
    async with open_replica(database_url, an_agent(waits), script) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("c1", "approve", result="mine")
        await run.finished(2)
        await sent(replica, "paid")
        await run.finished(3)
        assert await results(run) == ['["mine","paid"]']


async def test_a_call_whose_gate_waits_too_long_gets_an_error(database_url: str) -> None:
    gate, probe = EventGate(timeout=0.3), Probe()
    script = in_order(turn(probe.call("c1")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, plugins=[gate.plugin]), script
    ) as replica:
        run = await replica.start()
        await run.ended()
        assert await results(run) == [
            f"The event '{NAME}' with the key '{KEY}' did not come in time"
        ]
    assert probe.handed == []


async def test_a_match_of_a_decided_ticket_changes_nothing(database_url: str) -> None:
    waits = WaitingTool()
    script = in_order(turn(waits.call()), turn("done"))
    async with open_replica(database_url, an_agent(waits.tool), script) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("c1", "cancel")
        await run.ended()
        resent = await sent(replica, "late", id="s1")
        [ticket] = await run.tickets()
        await match_wait(replica.ctx, DEFAULT_TENANT, run.id, ticket.id)
        async with replica.database.reading() as connection:
            stored = await signals.find(connection, DEFAULT_TENANT, "s1")
    assert resent.response_status is SignalStatus.KEPT
    assert stored is not None
    assert stored.status is SignalStatus.KEPT
