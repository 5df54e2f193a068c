"""Rolled back: a run makes way, and those after it begin as if it had never been."""

import asyncio
from collections.abc import Sequence

import pytest

from app.clock import new_id
from app.commands.runs.new_run import OnActive
from app.commands.runs.retry import RetryRequest, VersionOfAgent
from app.commands.threads.fork import ForkRequest, fork
from app.commands.threads.save_summary import save_late_summary
from app.domain.ids import AgentId, MessageId, ThreadId
from app.domain.runs.runs import Done
from app.domain.runs.terminations import Cancelled, NaturalEnd, Outcome, outcome
from app.domain.threads.messages import LoggedMessage, MessageRange, Visibility
from app.llm.scripted.model import Gate, Script, ScriptedTurn, in_order, turn
from app.queries import records
from app.runtime.compaction.compaction import CompactionResult as Late
from app.runtime.history.summaries import summary_message
from app.runtime.plugins import HandOff, HookView, Phase, Plugin, Request
from app.runtime.ports import ModelRequest
from app.storage.runs import runs
from app.workers.direct_start import retry_and_execute
from tests.support.house import (
    ANN,
    Run,
    an_agent,
    joined,
    of_type,
    replica,
    texts_of,
    types_of,
)
from tests.support.invariants import broken_invariants
from tests.support.probes import Probe

pytestmark = pytest.mark.anyio


class Shown:
    """Plays a script, and keeps what the model was shown each time."""

    def __init__(self, *turns: ScriptedTurn) -> None:
        self.all: list[list[str]] = []
        self._next: Script = in_order(*turns)

    def __call__(self, request: ModelRequest) -> ScriptedTurn:
        self.all.append([message.text for message in request.messages])
        return self._next(request)


async def put_in_place_of(run: Run, text: str = "no, this") -> Run:
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
        after=None,
        before=None,
        descending=False,
        run_id=None,
        visibility=Visibility.ALL,
        limit=100,
        with_rolled_back=all_of_it,
    )


def seqs(log: Sequence[LoggedMessage]) -> list[int]:
    return [entry.seq for entry in log]


async def test_the_next_run_begins_as_if_the_one_before_had_never_been(database_url: str) -> None:
    probe, gate = Probe(), Gate()
    shown = Shown(
        turn("first answer"), turn(probe.call("c1")), turn(gate, "too late"), turn("right away")
    )
    async with replica(database_url, an_agent(probe.tool), shown) as house:
        before = await house.start("hello")
        await before.ended()
        unwanted = await house.start("do it", thread_id=before.thread_id)
        await asyncio.wait_for(gate.reached.wait(), 15)
        wanted = await put_in_place_of(unwanted)
        gone = await end_of(unwanted)
        assert outcome(gone.termination) is Outcome.CANCELLED
        assert isinstance(gone.termination, Cancelled)
        assert wanted.id in str(gone.termination.reason)
        assert outcome((await end_of(wanted)).termination) is Outcome.SUCCEEDED
        assert shown.all[-1] == ["hello", "first answer", "no, this"]

        record = await unwanted.now()
        assert record.rolled_back_by == wanted.id
        said = await unwanted.ended()
        order = [
            type_
            for type_ in types_of(said)
            if type_ in ("rollback_requested", "cancel_requested", "rolled_back", "run_finish")
        ]
        assert order == ["rollback_requested", "cancel_requested", "rolled_back", "run_finish"]
        [undone] = of_type(said, "rolled_back")

        whole = await listed(unwanted, all_of_it=True)
        assert seqs(whole) == list(range(1, len(whole) + 1))
        out = [entry for entry in whole if entry.rolled_back_by is not None]
        assert {entry.rolled_back_by for entry in out} == {wanted.id}
        assert seqs(out) == list(range(undone["from_seq"], undone["to_seq"] + 1))
        assert [text for _, text in texts_of(out)][:3] == ["do it", "", "probe did it"]
        assert seqs(await listed(unwanted)) == [
            entry.seq for entry in whole if entry.rolled_back_by is None
        ]
        assert record.input is not None
        assert record.input.range is not None
        assert record.output.range is not None
        assert record.input.range.from_seq == undone["from_seq"]
        assert record.output.range.to_seq <= undone["to_seq"]
    assert await broken_invariants(database_url) == {}


@pytest.mark.parametrize("occupant", ["waiting", "created"])
async def test_a_run_at_rest_is_taken_out_at_once(database_url: str, occupant: str) -> None:
    probe = Probe()
    shown = Shown(turn(probe.call("c1")), turn("right away"))
    if occupant == "created":
        shown = Shown(turn("right away"))
    catalog = an_agent(probe.tool, approval=["probe"])
    slots = 10 if occupant == "waiting" else 0
    async with replica(database_url, catalog, shown, slots=slots) as house:
        unwanted = await house.start("do it", here=False)
        if occupant == "waiting":
            await unwanted.finished()
        wanted = await put_in_place_of(unwanted)
        record = await unwanted.now()
        assert record.is_done
        assert record.rolled_back_by == wanted.id
        said = await unwanted.ended()
        assert types_of(said)[-2:] == ["rolled_back", "run_finish"]
        assert ("from_seq" in said[-2]) is (occupant == "waiting")
    async with replica(database_url, catalog, shown) as other:
        assert outcome((await end_of(other.same(wanted))).termination) is Outcome.SUCCEEDED
    assert shown.all[-1] == ["no, this"]
    assert probe.handed == []
    assert await broken_invariants(database_url) == {}


async def test_a_run_whose_worker_is_dead_is_taken_out_by_the_next_one(database_url: str) -> None:
    gate = Gate()
    shown = Shown(turn(gate, "too late"), turn("right away"))
    catalog = an_agent()
    async with replica(database_url, catalog, shown) as house:
        async with replica(database_url, catalog, shown) as doomed:
            unwanted = await doomed.start("do it")
            await asyncio.wait_for(gate.reached.wait(), 15)
            await doomed.kill()
            wanted = await put_in_place_of(house.same(unwanted))
        assert outcome((await end_of(house.same(unwanted))).termination) is Outcome.CANCELLED
        assert outcome((await end_of(wanted)).termination) is Outcome.SUCCEEDED
        assert shown.all[-1] == ["no, this"]
    assert await broken_invariants(database_url) == {}


async def test_a_run_that_ends_by_itself_first_is_taken_out_all_the_same(
    database_url: str,
) -> None:
    """Nobody queues behind it any more, and nobody has told it anything: its own end sees to it."""
    gate = Gate()
    shown = Shown(turn(gate, "all done"), turn("right away"))
    async with replica(database_url, an_agent(), shown) as house:
        unwanted = await house.start("do it")
        await asyncio.wait_for(gate.reached.wait(), 15)
        async with house.database.transaction() as connection:
            await runs.request_rollback(connection, ANN.tenant, unwanted.id, by=unwanted.id)
        gate.open.set()
        assert (await end_of(unwanted)).termination == NaturalEnd()
        assert types_of(await unwanted.ended())[-2:] == ["rolled_back", "run_finish"]
        after = await house.start("and now", thread_id=unwanted.thread_id)
        await after.ended()
        assert shown.all[-1] == ["and now"]
    assert await broken_invariants(database_url) == {}


async def test_who_queued_before_comes_first_and_begins_without_it_too(database_url: str) -> None:
    probe = Probe()
    shown = Shown(turn(probe.call("c1")), turn("to the second"), turn("to the third"))
    async with replica(database_url, an_agent(probe.tool, approval=["probe"]), shown) as house:
        unwanted = await house.start("first")
        await unwanted.finished()
        second = await house.start("second", thread_id=unwanted.thread_id)
        third = await put_in_place_of(unwanted, "third")
        await second.ended()
        await third.ended()
        assert shown.all[1:] == [["second"], ["second", "to the second", "third"]]
    assert await broken_invariants(database_url) == {}


# --- what else it has changed ---------------------------------------------------------------------


def handing_off() -> Plugin:
    async def give_away(_: HookView) -> Sequence[Request]:
        return [HandOff(AgentId("expert"))]

    return Plugin(name="giver", hooks={Phase.STEP_END: give_away})


async def test_the_thread_forgets_whom_it_was_handed_to(database_url: str) -> None:
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
    async with replica(database_url, catalog, script) as house:
        unwanted = await house.start("do it")
        await asyncio.wait_for(gate.reached.wait(), 15)
        kept = "SELECT state::text FROM threads WHERE id = $1"
        assert "expert" in str(await house.database.pool.fetchval(kept, unwanted.thread_id))
        house.starts_with = AgentId("")
        wanted = await put_in_place_of(unwanted)
        assert wanted.record.agent_id == "clerk"
        await unwanted.ended()
        assert "expert" not in str(await house.database.pool.fetchval(kept, unwanted.thread_id))
        await wanted.ended()
    assert await broken_invariants(database_url) == {}


async def test_a_retry_goes_together_with_what_it_was_to_make_up_for(database_url: str) -> None:
    probe, gate = Probe(), Gate()
    shown = Shown(
        turn("hello back"), turn(probe.call("c1")), turn(gate, "too late"), turn("right away")
    )
    async with replica(database_url, an_agent(probe.tool, approval=["probe"]), shown) as house:
        before = await house.start("hello")
        await before.ended()
        failed = await house.start("do it", thread_id=before.thread_id)
        await failed.finished()
        await failed.cancel()
        request = RetryRequest(VersionOfAgent.SAME)
        line = await retry_and_execute(house.ctx, house.worker, ANN, failed.id, request)
        await asyncio.wait_for(gate.reached.wait(), 15)
        again = Run(house, line.record)
        wanted = await put_in_place_of(again)
        await again.ended()
        await wanted.ended()
        assert shown.all[-1] == ["hello", "hello back", "no, this"]
    assert await broken_invariants(database_url) == {}


async def test_a_copy_of_the_thread_leaves_out_the_same(database_url: str) -> None:
    probe = Probe()
    shown = Shown(turn(probe.call("c1")), turn("right away"), turn("in the copy"))
    async with replica(database_url, an_agent(probe.tool, approval=["probe"]), shown) as house:
        unwanted = await house.start("do it")
        await unwanted.finished()
        wanted = await put_in_place_of(unwanted)
        await wanted.ended()
        copied: list[ThreadId] = []
        for last in (2, None):
            copied.append(ThreadId(new_id()))
            request = ForkRequest(
                thread_id=copied[-1],
                from_seq=last,
                run_id=None,
                title=None,
                resource_id=None,
                metadata=None,
            )
            await fork(house.ctx, ANN, unwanted.thread_id, request)
        early = await house.start("there", thread_id=copied[0])
        await early.ended()
        assert shown.all[-1] == ["there"]
        stretches = await house.database.pool.fetch(
            "SELECT thread_id::text, from_seq, to_seq FROM rollbacks ORDER BY created_at"
        )
        assert {tuple(row) for row in stretches} == {
            (unwanted.thread_id, 1, 4),
            (copied[0], 1, 2),
            (copied[1], 1, 4),
        }


async def test_no_summary_brings_it_back(database_url: str) -> None:
    probe = Probe()
    shown = Shown(turn(probe.call("c1")), turn("right away"))
    async with replica(database_url, an_agent(probe.tool, approval=["probe"]), shown) as house:
        unwanted = await house.start("do it")
        await unwanted.finished()
        wanted = await put_in_place_of(unwanted)
        await wanted.ended()
        for stretch, is_kept in ((MessageRange(1, 3), False), (MessageRange(5, 6), True)):
            summary = summary_message(MessageId(new_id()), "in short", stretch)
            late = Late(messages=(summary,))
            assert is_kept is await save_late_summary(
                house.database, ANN.tenant, unwanted.thread_id, late
            )
