"""Rollback: a run is cancelled for another, and later runs don't see its messages."""

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest

from app.clock import new_id
from app.commands.runs.new_run import OnActive
from app.commands.runs.retry import RetryRequest, VersionOfAgent, retry
from app.commands.threads.fork import ForkRequest, fork
from app.commands.threads.save_summary import save_late_summary
from app.domain.ids import AgentId, MessageId, ThreadId
from app.domain.runs.runs import Done
from app.domain.runs.terminations import Cancelled, NaturalEnd, Outcome, outcome
from app.domain.slices import Order, PageRequest
from app.domain.threads.messages import LoggedMessage, MessageFilter, MessageRange, Visibility
from app.llm.scripted.model import Gate, Script, ScriptedTurn, in_order, turn
from app.queries import records
from app.runtime.compaction.compaction import CompactionResult as Late
from app.runtime.history.summaries import summary_message
from app.runtime.plugins import HandOff, HookView, Phase, Plugin, Request
from app.runtime.ports.models import ModelRequest
from app.storage.runs import runs
from app.workers.direct_start import execute_here
from tests.support.invariants import broken_invariants
from tests.support.probes import Probe
from tests.support.replicas import (
    ANN,
    Run,
    an_agent,
    joined,
    of_type,
    open_replica,
    texts_of,
    types_of,
)

pytestmark = pytest.mark.anyio


class RecordedRequests:
    """Plays a script, and records the messages of each request."""

    def __init__(self, *turns: ScriptedTurn) -> None:
        self.all: list[list[str]] = []
        self._next: Script = in_order(*turns)

    def __call__(self, request: ModelRequest) -> ScriptedTurn:
        self.all.append([message.text for message in request.messages])
        return self._next(request)


async def roll_back(run: Run, text: str = "no, this") -> Run:
    return await run.replica.start(
        text, thread_id=run.thread_id, on_active=OnActive.ROLLBACK, here=False
    )


async def end_of(run: Run) -> Done:
    await run.ended()
    state = (await run.now()).state
    assert isinstance(state, Done)
    return state


async def listed(run: Run, *, all_of_it: bool = False) -> Sequence[LoggedMessage]:
    return await records.list_messages(
        run.replica.ctx,
        ANN,
        run.thread_id,
        MessageFilter(visibility=Visibility.ALL, with_rolled_back=all_of_it),
        PageRequest(order=Order.ASC),
    )


def seqs(log: Sequence[LoggedMessage]) -> list[int]:
    return [entry.seq for entry in log]


async def test_the_next_run_does_not_see_the_rolled_back_run(database_url: str) -> None:
    probe, gate = Probe(), Gate()
    requests = RecordedRequests(
        turn("first answer"), turn(probe.call("c1")), turn(gate, "too late"), turn("right away")
    )
    async with open_replica(database_url, an_agent(probe.tool), requests) as replica:
        before = await replica.start("hello")
        await before.ended()
        rolled_back = await replica.start("do it", thread_id=before.thread_id)
        await asyncio.wait_for(gate.reached.wait(), 15)
        replacement = await roll_back(rolled_back)
        ended = await end_of(rolled_back)
        assert outcome(ended.termination) is Outcome.CANCELLED
        assert isinstance(ended.termination, Cancelled)
        assert replacement.id in str(ended.termination.reason)
        assert outcome((await end_of(replacement)).termination) is Outcome.SUCCEEDED
        assert requests.all[-1] == ["hello", "first answer", "no, this"]

        record = await rolled_back.now()
        assert record.rolled_back_by == replacement.id
        emitted = await rolled_back.ended()
        order = [
            type_
            for type_ in types_of(emitted)
            if type_ in ("rollback_requested", "cancel_requested", "rolled_back", "run_finish")
        ]
        assert order == ["rollback_requested", "cancel_requested", "rolled_back", "run_finish"]
        [rollback_event] = of_type(emitted, "rolled_back")

        whole = await listed(rolled_back, all_of_it=True)
        assert seqs(whole) == list(range(1, len(whole) + 1))
        removed = [entry for entry in whole if entry.rolled_back_by is not None]
        assert {entry.rolled_back_by for entry in removed} == {replacement.id}
        assert seqs(removed) == list(
            range(rollback_event["from_seq"], rollback_event["to_seq"] + 1)
        )
        assert [text for _, text in texts_of(removed)][:3] == ["do it", "", "probe did it"]
        assert seqs(await listed(rolled_back)) == [
            entry.seq for entry in whole if entry.rolled_back_by is None
        ]
        assert record.input is not None
        assert record.input.range is not None
        assert record.output.range is not None
        assert record.input.range.from_seq == rollback_event["from_seq"]
        assert record.output.range.to_seq <= rollback_event["to_seq"]
    assert await broken_invariants(database_url) == {}


@pytest.mark.parametrize("occupant", ["waiting", "created"])
async def test_an_idle_run_is_rolled_back_at_once(database_url: str, occupant: str) -> None:
    probe = Probe()
    requests = RecordedRequests(turn(probe.call("c1")), turn("right away"))
    if occupant == "created":
        requests = RecordedRequests(turn("right away"))
    catalog = an_agent(probe.tool, approval=["probe"])
    slots = 10 if occupant == "waiting" else 0
    async with open_replica(database_url, catalog, requests, slots=slots) as replica:
        rolled_back = await replica.start("do it", here=False)
        if occupant == "waiting":
            await rolled_back.finished()
        replacement = await roll_back(rolled_back)
        record = await rolled_back.now()
        assert record.is_done
        assert record.rolled_back_by == replacement.id
        emitted = await rolled_back.ended()
        assert types_of(emitted)[-2:] == ["rolled_back", "run_finish"]
        assert ("from_seq" in emitted[-2]) is (occupant == "waiting")
    async with open_replica(database_url, catalog, requests) as other:
        assert outcome((await end_of(other.same(replacement))).termination) is Outcome.SUCCEEDED
    assert requests.all[-1] == ["no, this"]
    assert probe.handed == []
    assert await broken_invariants(database_url) == {}


async def test_a_run_whose_worker_is_dead_is_rolled_back_by_the_next_worker(
    database_url: str,
) -> None:
    gate = Gate()
    requests = RecordedRequests(turn(gate, "too late"), turn("right away"))
    catalog = an_agent()
    async with open_replica(database_url, catalog, requests) as replica:
        async with open_replica(database_url, catalog, requests) as dying_replica:
            rolled_back = await dying_replica.start("do it")
            await asyncio.wait_for(gate.reached.wait(), 15)
            await dying_replica.kill()
            replacement = await roll_back(replica.same(rolled_back))
        assert outcome((await end_of(replica.same(rolled_back))).termination) is Outcome.CANCELLED
        assert outcome((await end_of(replacement)).termination) is Outcome.SUCCEEDED
        assert requests.all[-1] == ["no, this"]
    assert await broken_invariants(database_url) == {}


async def test_a_run_that_ends_before_its_cancel_is_rolled_back_too(
    database_url: str,
) -> None:
    """No run is queued behind it and no cancel reaches it: its own end performs the rollback."""
    gate = Gate()
    requests = RecordedRequests(turn(gate, "all done"), turn("right away"))
    async with open_replica(database_url, an_agent(), requests) as replica:
        rolled_back = await replica.start("do it")
        await asyncio.wait_for(gate.reached.wait(), 15)
        async with replica.database.transaction() as connection:
            await runs.request_rollback(connection, ANN.tenant, rolled_back.id, by=rolled_back.id)
        gate.open.set()
        assert (await end_of(rolled_back)).termination == NaturalEnd()
        assert types_of(await rolled_back.ended())[-2:] == ["rolled_back", "run_finish"]
        after = await replica.start("and now", thread_id=rolled_back.thread_id)
        await after.ended()
        assert requests.all[-1] == ["and now"]
    assert await broken_invariants(database_url) == {}


async def test_an_earlier_queued_run_starts_first_and_does_not_see_the_rolled_back_run(
    database_url: str,
) -> None:
    probe = Probe()
    requests = RecordedRequests(turn(probe.call("c1")), turn("to the second"), turn("to the third"))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), requests
    ) as replica:
        rolled_back = await replica.start("first")
        await rolled_back.finished()
        second = await replica.start("second", thread_id=rolled_back.thread_id)
        third = await roll_back(rolled_back, "third")
        await second.ended()
        await third.ended()
        assert requests.all[1:] == [["second"], ["second", "to the second", "third"]]
    assert await broken_invariants(database_url) == {}


# --- hand-offs, retries, forks and summaries ------------------------------------------------------


def handing_off() -> Plugin:
    async def hand_off(_: HookView) -> Sequence[Request]:
        return [HandOff(AgentId("expert"))]

    return Plugin(name="giver", hooks={Phase.STEP_END: hand_off})


async def test_a_rollback_reverts_the_hand_off_of_the_thread(database_url: str) -> None:
    probe, gate = Probe(), Gate()
    catalog = joined(
        an_agent(probe.tool, id="clerk", plugins=[handing_off()]),
        an_agent(probe.tool, id="expert"),
    )
    script = in_order(
        turn(probe.call("c1")),
        turn(probe.call("c2")),
        turn(gate, "too late"),
        turn("at your service"),
    )
    async with open_replica(database_url, catalog, script) as replica:
        rolled_back = await replica.start("do it")
        await asyncio.wait_for(gate.reached.wait(), 15)
        thread_state = "SELECT state::text FROM threads WHERE id = $1"
        assert "expert" in str(
            await replica.database.pool.fetchval(thread_state, rolled_back.thread_id)
        )
        replica.starts_with = AgentId("")
        replacement = await roll_back(rolled_back)
        assert replacement.record.agent_id == "clerk"
        await rolled_back.ended()
        assert "expert" not in str(
            await replica.database.pool.fetchval(thread_state, rolled_back.thread_id)
        )
        await replacement.ended()
    assert await broken_invariants(database_url) == {}


async def test_rolling_back_a_retry_rolls_back_the_failed_run_too(database_url: str) -> None:
    probe, gate = Probe(), Gate()
    requests = RecordedRequests(
        turn("hello back"), turn(probe.call("c1")), turn(gate, "too late"), turn("right away")
    )
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), requests
    ) as replica:
        before = await replica.start("hello")
        await before.ended()
        failed = await replica.start("do it", thread_id=before.thread_id)
        await failed.finished()
        await failed.cancel()
        request = RetryRequest(VersionOfAgent.SAME)
        started = await execute_here(
            replica.worker, partial(retry, replica.ctx, ANN, failed.id, request)
        )
        await asyncio.wait_for(gate.reached.wait(), 15)
        second_retry = Run(replica, started.record)
        replacement = await roll_back(second_retry)
        await second_retry.ended()
        await replacement.ended()
        assert requests.all[-1] == ["hello", "hello back", "no, this"]
    assert await broken_invariants(database_url) == {}


async def test_a_fork_leaves_out_rolled_back_messages(database_url: str) -> None:
    probe = Probe()
    requests = RecordedRequests(turn(probe.call("c1")), turn("right away"), turn("in the copy"))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), requests
    ) as replica:
        rolled_back = await replica.start("do it")
        await rolled_back.finished()
        replacement = await roll_back(rolled_back)
        await replacement.ended()
        copied: list[ThreadId] = []
        for last in (2, None):
            copied.append(ThreadId(new_id()))
            request = ForkRequest(
                thread_id=copied[-1],
                to_seq=last,
                run_id=None,
                title=None,
                resource_id=None,
                metadata=None,
            )
            await fork(replica.ctx, ANN, rolled_back.thread_id, request)
        early = await replica.start("there", thread_id=copied[0])
        await early.ended()
        assert requests.all[-1] == ["there"]
        stretches = await replica.database.pool.fetch(
            "SELECT thread_id::text, from_seq, to_seq FROM rollbacks ORDER BY created_at"
        )
        assert {tuple(row) for row in stretches} == {
            (rolled_back.thread_id, 1, 4),
            (copied[0], 1, 2),
            (copied[1], 1, 4),
        }


async def test_no_summary_contains_rolled_back_messages(database_url: str) -> None:
    probe = Probe()
    requests = RecordedRequests(turn(probe.call("c1")), turn("right away"))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), requests
    ) as replica:
        rolled_back = await replica.start("do it")
        await rolled_back.finished()
        replacement = await roll_back(rolled_back)
        await replacement.ended()
        for stretch, is_summary_stored in ((MessageRange(1, 3), False), (MessageRange(5, 6), True)):
            summary = summary_message(MessageId(new_id()), "in short", stretch)
            late = Late(messages=(summary,))
            assert is_summary_stored is await save_late_summary(
                replica.database, ANN.tenant, rolled_back.thread_id, late
            )
