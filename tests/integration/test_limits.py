"""Limits that a caller sets: the run ends at them, or waits for a person who raises them."""

from typing import Any

import pytest

from app.commands.tickets.expire import expire_due
from app.domain.agents.specs import ToolExecution
from app.domain.errors import Conflict, Forbidden, Invalid
from app.domain.runs.limits import OnLimit, limits_of, limits_to_json, used_by
from app.domain.runs.runs import Done, RunStatus
from app.domain.runs.terminations import NaturalEnd, Stopped, Termination
from app.domain.tickets.limit_tickets import LIMIT_TOOL_NAME
from app.domain.tickets.terms import ApproverRule, OnExpiry
from app.domain.tickets.tickets import Ticket, TicketKind, TicketStatus
from app.domain.tools.tool_calls import INTERRUPTED
from app.llm.scripted.model import Gate, ScriptInOrder, in_order, turn
from app.queries.explain import explain
from app.queries.explain_reasons import ReasonCode
from tests.support.conditions import eventually
from tests.support.finishes import asked_by
from tests.support.invariants import broken_invariants
from tests.support.probes import Probe
from tests.support.replicas import (
    ANN,
    Run,
    an_agent,
    decision,
    of_type,
    open_replica,
    texts_of,
    types_of,
)

pytestmark = pytest.mark.anyio

BOTH_WAYS = pytest.mark.parametrize("mode", list(ToolExecution))
ASK: Any = {"on_limit": OnLimit.ASK}


def rounds(probe: Probe, *texts: str) -> ScriptInOrder:
    return in_order(
        *(turn(probe.call(f"c{n}", text)) for n, text in enumerate(texts)), turn("done")
    )


async def termination(run: Run) -> Termination:
    state = (await run.now()).state
    assert isinstance(state, Done)
    return state.termination


async def only_open_ticket(run: Run) -> Ticket:
    [ticket] = [one for one in await run.tickets() if one.status is TicketStatus.OPEN]
    return ticket


async def limits_now(run: Run) -> dict[str, Any]:
    return limits_to_json(limits_of(await run.now()))


# --- stop -----------------------------------------------------------------------------------------


async def test_no_step_begins_beyond_the_limit(database_url: str) -> None:
    probe = Probe()
    async with open_replica(
        database_url, an_agent(probe.tool), rounds(probe, "a", "b", "c")
    ) as replica:
        run = await replica.start(limits={"steps": 2})
        emitted = await run.finished()
        assert await termination(run) == Stopped("limit_steps", "2 of 2 steps were used")
        assert used_by(await run.now()).steps == len(of_type(emitted, "step_start")) == 2
    assert [handed.text for handed in probe.handed] == ["a", "b"]


async def test_a_run_that_is_complete_at_its_limit_succeeds(database_url: str) -> None:
    probe = Probe()
    script = rounds(probe, "a")
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start(limits={"steps": 2, "tokens": 10_000, "tool_calls": 1})
        await run.finished()
        assert await termination(run) == NaturalEnd()


async def test_the_token_limit_is_checked_before_the_next_step(database_url: str) -> None:
    probe = Probe()
    async with open_replica(database_url, an_agent(probe.tool), rounds(probe, "a", "b")) as replica:
        run = await replica.start(limits={"tokens": 1})
        await run.finished()
        ended = await termination(run)
        assert isinstance(ended, Stopped)
        assert ended.code == "limit_tokens"
        assert used_by(await run.now()).tokens > 1
    assert len(probe.handed) == 1


@BOTH_WAYS
async def test_calls_over_the_limit_are_not_run(database_url: str, mode: ToolExecution) -> None:
    probe = Probe()
    script = in_order(turn(*(probe.call(f"c{n}") for n in range(4))), turn("done"))
    agent = an_agent(probe.tool, tool_execution=mode)
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start(limits={"tool_calls": 2})
        await run.finished()
        assert await termination(run) == Stopped("limit_tool_calls", "2 of 2 tool calls were used")
        tool_texts = [text for role, text in texts_of(await run.log()) if role == "tool"]
        assert tool_texts == [
            "probe did it",
            "probe did it",
            "Not run: 2 of 2 tool calls were used",
            INTERRUPTED,
        ]
        assert used_by(await run.now()).tool_calls == 2
    assert [handed.call_id for handed in probe.handed] == ["c0", "c1"]
    assert await broken_invariants(database_url) == {}


async def test_the_time_limit_interrupts_an_answer_and_keeps_its_text(database_url: str) -> None:
    gate = Gate()
    async with open_replica(
        database_url, an_agent(), in_order(turn("Well, ", gate, "no"))
    ) as replica:
        run = await replica.start(limits={"wall_seconds": 0.3})
        emitted = await run.finished()
        assert emitted[-1]["termination"]["code"] == "limit_wall_seconds"
        [_, answer] = await run.log()
        assert (answer.message.text, answer.message.cut_short) == ("Well, ", "stopped")
    assert await broken_invariants(database_url) == {}


async def test_the_time_limit_interrupts_a_tool(database_url: str) -> None:
    probe = Probe(held=True)
    async with open_replica(database_url, an_agent(probe.tool), rounds(probe, "a")) as replica:
        run = await replica.start(limits={"wall_seconds": 0.3})
        emitted = await run.finished()
        assert emitted[-1]["termination"]["code"] == "limit_wall_seconds"
        assert texts_of(await run.log())[-1] == ("tool", INTERRUPTED)
    assert await broken_invariants(database_url) == {}


# --- ask ------------------------------------------------------------------------------------------


async def test_a_run_at_its_limit_waits_and_continues_once_the_limit_is_raised(
    database_url: str,
) -> None:
    probe = Probe()
    async with open_replica(
        database_url, an_agent(probe.tool), rounds(probe, "a", "b", "c")
    ) as replica:
        run = await replica.start(limits={"steps": 1}, **ASK)
        emitted = await run.finished()
        assert emitted[-1]["waiting"]["reason"] == "user_input"
        assert (await run.now()).status is RunStatus.WAITING
        ticket = await only_open_ticket(run)
        assert (ticket.kind, ticket.name, ticket.call_id) == (
            TicketKind.LIMIT,
            "limit_steps",
            None,
        )
        assert ticket.arguments == {"limit": "steps", "allowed": 1, "used": 1, "raise_by": 1}
        await run.decide("limit_steps", "approve")
        await run.finished(2)
        assert await limits_now(run) == {"steps": 2}
        await run.decide("limit_steps:2", "edit", arguments={"raise_by": 5})
        await run.finished(3)
        assert await termination(run) == NaturalEnd()
        assert await limits_now(run) == {"steps": 7}
        assert [one.status.value for one in await run.tickets()] == ["decided", "decided"]
        assert all(one.applied_at for one in await run.tickets())
    assert [handed.text for handed in probe.handed] == ["a", "b", "c"]
    assert await broken_invariants(database_url) == {}


async def test_an_approval_raises_the_limit_above_the_current_use(database_url: str) -> None:
    probe = Probe()
    async with open_replica(database_url, an_agent(probe.tool), rounds(probe, "a")) as replica:
        run = await replica.start(limits={"tokens": 1}, **ASK)
        await run.finished()
        used = used_by(await run.now()).tokens
        await run.decide("limit_tokens", "approve")
        await run.finished(2)
        assert await termination(run) == NaturalEnd()
        assert await limits_now(run) == {"tokens": used + 1}


@pytest.mark.parametrize("action", ["reject", "cancel"])
async def test_a_refusal_to_raise_the_limit_ends_the_run(database_url: str, action: str) -> None:
    probe = Probe()
    async with open_replica(database_url, an_agent(probe.tool), rounds(probe, "a", "b")) as replica:
        run = await replica.start(limits={"steps": 1}, **ASK)
        await run.finished()
        await run.decide("limit_steps", action, reason="too dear")
        emitted = await run.finished(2)
        assert await termination(run) == Stopped(
            "limit_steps", "1 of 1 steps were used, and no more was granted: too dear"
        )
        assert emitted[-1]["termination"]["code"] == "limit_steps"
    assert len(probe.handed) == 1


@BOTH_WAYS
async def test_calls_over_the_limit_wait_and_run_once_it_is_raised(
    database_url: str, mode: ToolExecution
) -> None:
    probe = Probe()
    script = in_order(turn(*(probe.call(f"c{n}") for n in range(4))), turn("done"))
    agent = an_agent(probe.tool, tool_execution=mode)
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start(limits={"tool_calls": 1}, **ASK)
        emitted = await run.finished()
        outcomes = [one["result"].get("outcome") for one in of_type(emitted, "tool_call_done")]
        assert outcomes == ["succeeded", None, None, None]
        assert len(of_type(emitted, "ticket_opened")) == 1
        ticket = await only_open_ticket(run)
        assert ticket.name == "limit_tool_calls"
        await run.decide("limit_tool_calls", "respond", result={"raise_by": 2})
        emitted = await run.finished(2)
        assert len(probe.handed) == 3
        assert (await only_open_ticket(run)).name == "limit_tool_calls:2"
        await run.decide("limit_tool_calls:2", "approve")
        await run.finished(3)
        assert await termination(run) == NaturalEnd()
        assert used_by(await run.now()).tool_calls == 4
    assert [handed.call_id for handed in probe.handed] == ["c0", "c1", "c2", "c3"]
    assert await broken_invariants(database_url) == {}


async def test_an_approved_call_waits_for_the_limit_and_needs_no_second_approval(
    database_url: str,
) -> None:
    probe, asking = Probe(), Probe(name="asking")
    script = in_order(turn(probe.call("c0"), asking.call("c1"), asking.call("c2")), turn("done"))
    agent = an_agent(probe.tool, asking.tool, approval=["asking"])
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start(limits={"tool_calls": 2}, **ASK)
        await run.finished()
        await run.decide_all(decision("perm_c1", "approve"), decision("perm_c2", "approve"))
        emitted = await run.finished(2)
        assert asked_by(emitted[-1]) == ["limit_tool_calls"]
        assert [handed.call_id for handed in asking.handed] == ["c1"]
        await run.decide("limit_tool_calls", "approve")
        await run.finished(3)
        assert await termination(run) == NaturalEnd()
    assert [handed.call_id for handed in asking.handed] == ["c1", "c2"]
    assert await broken_invariants(database_url) == {}


async def test_decisions_wait_while_a_limit_ticket_is_open(database_url: str) -> None:
    probe, asking = Probe(), Probe(name="asking")
    script = in_order(turn(asking.call("c1"), probe.call("c2"), probe.call("c3")), turn("done"))
    agent = an_agent(probe.tool, asking.tool, approval=["asking"])
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start(limits={"tool_calls": 1}, **ASK)
        await run.finished()
        await run.decide("perm_c1", "approve")
        found = await explain(replica.ctx, ANN, run.id)
        assert [reason.code for reason in found.reasons] == [
            ReasonCode.LIMIT_REACHED,
            ReasonCode.WAITING_FOR_TICKETS,
        ]
        assert (await run.now()).status is RunStatus.WAITING
        await run.decide("limit_tool_calls", "edit", arguments={"raise_by": 2})
        emitted = await run.finished(2)
        assert await termination(run) == NaturalEnd()
    # The decision that couldn't be applied yet started no activation.
    assert len(of_type(emitted, "run_start")) == 2
    assert [handed.call_id for handed in probe.handed] == ["c2", "c3"]
    assert len(asking.handed) == 1


async def test_a_call_in_progress_when_the_time_is_up_may_finish(database_url: str) -> None:
    probe = Probe(held=True)
    async with open_replica(database_url, an_agent(probe.tool), rounds(probe, "a")) as replica:
        run = await replica.start(limits={"wall_seconds": 1.5}, **ASK)
        await probe.was_reached()
        reached_at = await replica.database.pool.fetchval("SELECT now()")
        await eventually(lambda: replica.database.pool.fetchval(_TIME_IS_UP, reached_at))
        probe.open.set()
        emitted = await run.finished()
        assert asked_by(emitted[-1]) == ["limit_wall_seconds"]
        assert texts_of(await run.log())[-1] == ("tool", "probe did a")
        await run.decide("limit_wall_seconds", "edit", arguments={"raise_by": 100})
        await run.finished(2)
        assert await termination(run) == NaturalEnd()
    assert len(probe.handed) == 1


_TIME_IS_UP = "SELECT now() > $1::timestamptz + interval '1.5 seconds'"


async def test_an_answer_interrupted_by_the_time_limit_is_requested_again(
    database_url: str,
) -> None:
    gate = Gate()
    first = turn("Well, ", gate, "no")
    async with open_replica(database_url, an_agent(), in_order(first)) as replica:
        run = await replica.start(limits={"wall_seconds": 0.3}, **ASK)
        emitted = await run.finished()
        assert types_of(emitted)[-5:] == [
            "stream_reset",
            "step_end",
            "ticket_opened",
            "state_snapshot",
            "run_finish",
        ]
        assert texts_of(await run.log()) == [("user", "go")]
    async with open_replica(database_url, an_agent(), in_order(turn("Hello"))) as other:
        run = other.same(run)
        await run.decide("limit_wall_seconds", "edit", arguments={"raise_by": 100.5})
        emitted = await run.finished(2)
        assert texts_of(await run.log()) == [("user", "go"), ("assistant", "Hello")]
        assert (await run.now()).steps == 1
    assert [event["step"] for event in of_type(emitted, "step_start")] == [1, 1]
    assert await broken_invariants(database_url) == {}


@pytest.mark.parametrize("effect", ["read", "unsafe"])
async def test_a_tool_interrupted_by_the_time_limit_is_recovered_as_after_a_crash(
    database_url: str, effect: Any
) -> None:
    probe = Probe(held=True, effect=effect)
    async with open_replica(database_url, an_agent(probe.tool), rounds(probe, "a", "b")) as replica:
        run = await replica.start(limits={"wall_seconds": 0.3}, **ASK)
        await run.finished()
        probe.held = False
        await run.decide("limit_wall_seconds", "edit", arguments={"raise_by": 100})
        emitted = await run.finished(2)
        if effect == "unsafe":
            assert asked_by(emitted[-1]) == ["unknown_c0"]
            await run.decide("unknown_c0", "respond", result="it did")
            await run.finished(3)
        assert await termination(run) == NaturalEnd()
        assert used_by(await run.now()).tool_calls == 2
    texts = ["a", "a", "b"] if effect == "read" else ["a", "b"]
    assert [handed.text for handed in probe.handed] == texts
    assert await broken_invariants(database_url) == {}


async def test_a_run_at_its_limit_can_be_cancelled_with_calls_that_wait(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn(probe.call("c0"), probe.call("c1"), probe.call("c2")))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start(limits={"tool_calls": 1}, **ASK)
        await run.finished()
        assert (await run.cancel()).is_done
        log = texts_of(await run.log())
        assert log[-2:] == [("tool", INTERRUPTED), ("tool", INTERRUPTED)]
        assert [one.status for one in await run.tickets()] == [TicketStatus.VOID]
    assert await broken_invariants(database_url) == {}


# --- who may answer, and until when ---------------------------------------------------------------


async def test_the_amount_of_a_raise_must_be_a_positive_whole_number(database_url: str) -> None:
    probe = Probe()
    async with open_replica(database_url, an_agent(probe.tool), rounds(probe, "a", "b")) as replica:
        run = await replica.start(limits={"steps": 1}, **ASK)
        await run.finished()
        for action, given, code in (
            ("edit", {"arguments": {"raise_by": 0}}, "arguments_invalid"),
            ("edit", {"arguments": {"raise_by": 1.5}}, "arguments_invalid"),
            ("edit", {"arguments": {"steps": 3}}, "arguments_invalid"),
            ("respond", {"result": {"raise_by": "two"}}, "response_schema_violation"),
            ("respond", {"result": 3}, "response_schema_violation"),
        ):
            with pytest.raises(Invalid) as refused:
                await run.decide("limit_steps", action, **given)
            assert refused.value.code == code
        assert (await only_open_ticket(run)).name == "limit_steps"


async def test_only_the_approvers_of_a_limit_may_raise_it(database_url: str) -> None:
    probe = Probe()
    rule = ApproverRule(not_starter=True)
    agent = an_agent(probe.tool, approvers={LIMIT_TOOL_NAME: rule})
    async with open_replica(database_url, agent, rounds(probe, "a", "b")) as replica:
        run = await replica.start(limits={"steps": 1}, **ASK)
        await run.finished()
        with pytest.raises(Forbidden) as refused:
            await run.decide("limit_steps", "approve")
        assert refused.value.code == "approver_not_allowed"


async def test_an_expired_limit_ticket_ends_the_run(database_url: str) -> None:
    probe = Probe()
    agent = an_agent(probe.tool, ticket_expires_in=3600.0, on_expiry=OnExpiry.REJECT)
    async with open_replica(database_url, agent, rounds(probe, "a", "b")) as replica:
        run = await replica.start(limits={"steps": 1}, **ASK)
        await run.finished()
        await replica.database.pool.execute("UPDATE tickets SET expires_at = now()")
        await expire_due(replica.ctx, 10)
        await run.finished(2)
        assert await termination(run) == Stopped(
            "limit_steps", "1 of 1 steps were used, and no decision came in time"
        )


async def test_a_second_decision_about_a_limit_is_refused(database_url: str) -> None:
    probe = Probe()
    async with open_replica(database_url, an_agent(probe.tool), rounds(probe, "a", "b")) as replica:
        run = await replica.start(limits={"steps": 1}, **ASK)
        await run.finished()
        await run.decide("limit_steps", "reject")
        with pytest.raises(Conflict) as refused:
            await run.decide("limit_steps", "approve")
        assert refused.value.code == "ticket_already_decided"


# --- crashes and hand-overs -----------------------------------------------------------------------


async def test_counters_and_raised_limits_survive_a_lost_worker(database_url: str) -> None:
    probe = Probe(effect="read")
    script = rounds(probe, "a", "b", "c", "d")
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start(limits={"tool_calls": 1, "steps": 9}, **ASK)
        await run.finished()
        probe.held = True
        probe.reached.clear()
        await run.decide("limit_tool_calls", "edit", arguments={"raise_by": 2})
        await probe.was_reached()
        await replica.kill()
    probe.held = False
    async with open_replica(database_url, an_agent(probe.tool), script) as other:
        run = other.same(run)
        emitted = await run.finished(2)
        assert asked_by(emitted[-1]) == ["limit_tool_calls:2"]
        assert used_by(await run.now()).tool_calls == 3
        assert await limits_now(run) == {"steps": 9, "tool_calls": 3}
    # The call that was cut short ran again, and counts once.
    assert [handed.text for handed in probe.handed] == ["a", "b", "b", "c"]


async def test_the_time_of_a_lost_worker_is_counted(database_url: str) -> None:
    gate = Gate()
    async with open_replica(database_url, an_agent(), in_order(turn(gate, "lost"))) as replica:
        run = await replica.start(limits={"wall_seconds": 600})
        await run.until("step_start")
        # `kill` sets the last heartbeat a day back; the run began eleven minutes before that.
        await replica.database.pool.execute(
            "UPDATE runs SET updated_at = updated_at - interval '1 day 11 minutes' WHERE id = $1",
            run.id,
        )
        await replica.kill()
    async with open_replica(database_url, an_agent(), in_order(turn("Hello"))) as other:
        run = other.same(run)
        emitted = await run.finished()
        assert used_by(await run.now()).wall_seconds > 600
    assert emitted[-1]["termination"]["code"] == "limit_wall_seconds"


async def test_time_before_a_hand_over_is_counted(database_url: str) -> None:
    gate = Gate()
    async with open_replica(database_url, an_agent(), in_order(turn(gate, "lost"))) as replica:
        run = await replica.start(limits={"wall_seconds": 600})
        await run.until("step_start")
        await replica.database.pool.execute(
            "UPDATE runs SET updated_at = updated_at - interval '11 minutes' WHERE id = $1", run.id
        )
        await replica.take_nothing_new()
        await replica.worker.stop(grace=0)
        assert used_by(await run.now()).wall_seconds > 600
    async with open_replica(database_url, an_agent(), in_order(turn("Hello"))) as other:
        emitted = await other.same(run).finished()
    assert emitted[-1]["termination"]["code"] == "limit_wall_seconds"
