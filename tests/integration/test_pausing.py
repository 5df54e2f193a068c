"""Pausing: a run with a pause request isn't executed beyond its next step border until it is resumed."""

import asyncio

import pytest

from app.clock import new_id
from app.commands.inputs.send import InputMode, InputRequest, ToRun, send_input
from app.commands.runs.pause import unpause
from app.domain.errors import Conflict
from app.domain.ids import MessageId, RunId
from app.domain.runs.runs import Created, Done, RunFilter, Waiting, WaitingReason
from app.domain.runs.terminations import Cancelled, NaturalEnd
from app.domain.slices import PageRequest
from app.domain.threads.messages import Message, Role, Text
from app.domain.tickets.tickets import TicketStatus
from app.llm.scripted.model import Gate, in_order, turn
from app.queries import records
from app.queries.explain import explain
from app.queries.explain_reasons import ReasonCode
from app.runtime.plugins import Pause, Phase, Request
from app.storage.runs.runs import RunKey
from tests.support.conditions import eventually
from tests.support.event_order import check_run
from tests.support.hooks import Hooks
from tests.support.invariants import broken_invariants
from tests.support.probes import Probe
from tests.support.replicas import (
    ANN,
    Replica,
    Run,
    an_agent,
    of_type,
    open_replica,
    texts_of,
    types_of,
)

pytestmark = pytest.mark.anyio

PAUSED = Waiting(WaitingReason.MANUAL_PAUSE, "manual_pause")


async def reached(gate: Gate) -> None:
    await asyncio.wait_for(gate.reached.wait(), 15)


async def steer(run: Run, text: str, mode: InputMode = InputMode.STEER) -> None:
    message = Message(id=MessageId(new_id()), role=Role.USER, content=(Text(text),))
    request = InputRequest(messages=(message,), mode=mode)
    await send_input(run.replica.ctx, ANN, ToRun(run.id), request, deliver=True)


async def assert_not_claimed(run: Run) -> bool:
    """A claim of the run is refused, and a following sweep changes nothing."""
    before = await run.now()
    replica = run.replica
    assert await replica.worker.slots.reserve_within(5)
    key = RunKey(before.tenant, before.thread_id, before.id, before.attempt)
    claimed = await replica.worker.claim_and_launch(key, None)
    await replica.sweeper.run_once()
    after = await run.now()
    return not claimed and (after.attempt, after.status) == (before.attempt, before.status)


async def reasons(run: Run) -> list[ReasonCode]:
    return [reason.code for reason in (await explain(run.replica.ctx, ANN, run.id)).reasons]


async def paused_run(replica: Replica, probe: Probe) -> Run:
    """A run whose first step is a call of the probe, paused while that call runs."""
    run = await replica.start()
    await probe.was_reached()
    answer = await run.pause("look first")
    assert not answer.is_paused
    probe.open.set()
    await run.finished()
    return run


# --- a run that executes --------------------------------------------------------------------------


async def test_a_run_suspends_at_its_next_step_border_and_resumes_there(database_url: str) -> None:
    probe = Probe(held=True)
    script = in_order(turn(probe.call("c1")), turn("Done."))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await paused_run(replica, probe)
        waiting = await run.now()
        assert waiting.state == PAUSED
        assert waiting.pause is not None
        assert (waiting.pause.requested_by, waiting.pause.reason) == ("ann", "look first")
        assert (waiting.steps, waiting.is_paused, len(script.requests)) == (1, True, 1)
        assert not replica.worker.executing
        assert await reasons(run) == [ReasonCode.PAUSED]
        assert await assert_not_claimed(run)
        resumed = await run.resume()
        assert resumed.run.pause is None
        emitted = await run.ended()
        done = await run.now()
    [requested] = of_type(emitted, "pause_requested")
    assert (requested["requested_by"], requested["reason"]) == ("ann", "look first")
    assert [one["ended_by"] for one in of_type(emitted, "pause_ended")] == ["ann"]
    first, last = of_type(emitted, "run_finish")
    assert first["termination"] == {"type": "suspended"}
    assert first["waiting"]["reason"] == "manual_pause"
    assert first["waiting"]["tickets"] == []
    assert last["termination"] == {"type": "natural_end"}
    assert types_of(emitted).count("run_start") == 2
    assert [one["step"] for one in of_type(emitted, "step_start")] == [1, 2]
    assert isinstance(done.state, Done)
    assert len(probe.handed) == 1
    assert await broken_invariants(database_url) == {}


async def test_pausing_and_resuming_again_changes_nothing(database_url: str) -> None:
    probe, gate = Probe(held=True), Gate()
    script = in_order(turn(probe.call("c1")), turn("Done", gate, "."))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        await run.resume()
        await probe.was_reached()
        await run.pause("first")
        again = await run.pause("second")
        assert again.pause is not None
        assert again.pause.reason == "first"
        probe.open.set()
        await run.finished()
        assert (await run.pause("third")).is_paused
        await run.resume()
        await reached(gate)
        await run.resume()
        gate.open.set()
        emitted = await run.ended()
    assert len(of_type(emitted, "pause_requested")) == len(of_type(emitted, "pause_ended")) == 1


async def test_a_pause_that_is_resumed_before_the_border_suspends_nothing(
    database_url: str,
) -> None:
    probe = Probe(held=True)
    script = in_order(turn(probe.call("c1")), turn("Done."))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        await probe.was_reached()
        await run.pause()
        await run.resume()
        probe.open.set()
        emitted = await run.ended()
    assert len(of_type(emitted, "run_finish")) == 1


async def test_a_run_that_ends_with_its_step_is_done_and_refuses_a_pause(database_url: str) -> None:
    gate = Gate()
    async with open_replica(database_url, an_agent(), in_order(turn("Well", gate, "."))) as replica:
        run = await replica.start()
        await reached(gate)
        await run.pause()
        gate.open.set()
        await run.ended()
        for command in (run.pause, run.resume):
            with pytest.raises(Conflict) as refused:
                await command()
            assert refused.value.code == "run_finished"


async def test_messages_for_a_paused_run_are_read_after_the_resume(database_url: str) -> None:
    probe = Probe(held=True)
    script = in_order(turn(probe.call("c1")), turn("Done."))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await paused_run(replica, probe)
        await steer(run, "be brief")
        with pytest.raises(Conflict) as refused:
            await steer(run, "go on", InputMode.RESUME_OPEN_RUN)
        assert refused.value.code == "run_paused"
        assert (await run.now()).unread_inputs == 1
        assert await assert_not_claimed(run)
        await run.resume()
        await run.ended()
        assert script.requests[1].messages[-1].text == "be brief"


async def test_a_cancel_ends_a_paused_run(database_url: str) -> None:
    probe = Probe(held=True)
    script = in_order(turn(probe.call("c1")), turn("next"))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await paused_run(replica, probe)
        assert (await run.cancel("enough")).is_done
        state = (await run.now()).state
        assert isinstance(state, Done)
        assert state.termination == Cancelled("enough")
        following = await replica.start("and now?", thread_id=run.thread_id)
        await following.ended()


# --- a run that waits -----------------------------------------------------------------------------


async def test_a_decision_for_a_paused_run_takes_effect_after_the_resume(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn(probe.call("c1")), turn("Done."))
    catalog = an_agent(probe.tool, approval=["probe"])
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.finished()
        assert (await run.pause("hold it")).is_paused
        assert (await run.now()).state == Waiting(WaitingReason.TOOL_PERMISSION, "suspended")
        assert await reasons(run) == [ReasonCode.WAITING_FOR_TICKETS, ReasonCode.PAUSED]
        await run.decide("c1", "approve")
        assert [ticket.status for ticket in await run.tickets()] == [TicketStatus.DECIDED]
        assert await assert_not_claimed(run)
        assert await reasons(run) == [ReasonCode.PAUSED]
        assert not probe.handed
        await run.resume()
        emitted = await run.ended()
    assert len(probe.handed) == 1
    assert types_of(emitted).count("run_start") == 2
    assert await broken_invariants(database_url) == {}


async def test_a_resume_leaves_an_open_ticket_to_be_decided(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn(probe.call("c1")), turn("Done."))
    catalog = an_agent(probe.tool, approval=["probe"])
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.finished()
        await run.pause()
        await run.resume()
        assert (await run.now()).attempt == 1
        await run.decide("c1", "approve")
        await run.ended()


async def test_a_run_that_suspends_for_a_ticket_stays_paused(database_url: str) -> None:
    probe = Probe(held=True, asks=1)
    script = in_order(turn(probe.call("c1")), turn("Done."))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await paused_run(replica, probe)
        waiting = await run.now()
        assert waiting.state == Waiting(WaitingReason.TOOL_PERMISSION, "suspended")
        await run.decide("c1", "respond", result="yes")
        assert await assert_not_claimed(run)
        await run.resume()
        await run.ended()


async def test_the_end_of_a_task_does_not_start_a_paused_run(database_url: str) -> None:
    probe = Probe(name="slow", held=True)
    script = in_order(turn(probe.call("c1")), turn("I will wait."), turn("It is done."))
    catalog = an_agent(probe.tool, background=["slow"])
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.finished()
        await run.pause()
        probe.open.set()

        async def task_has_ended() -> bool:
            return (await run.now()).unread_inputs == 1

        assert await eventually(task_has_ended)
        assert await assert_not_claimed(run)
        await run.resume()
        await run.ended()


# --- a run that hasn't begun ----------------------------------------------------------------------


async def test_a_run_that_is_paused_before_it_begins_is_not_started(database_url: str) -> None:
    async with open_replica(database_url, an_agent(), in_order(turn("Hello")), slots=1) as replica:
        assert replica.worker.slots.reserve()
        run = await replica.start(here=False)
        assert (await run.pause()).is_paused
        replica.worker.slots.free()
        assert await assert_not_claimed(run)
        assert await reasons(run) == [ReasonCode.PAUSED]
        await run.resume()
        emitted = await run.ended()
    assert len(of_type(emitted, "run_finish")) == 1


async def test_lists_find_runs_by_their_pause_and_by_what_they_wait_for(database_url: str) -> None:
    probe = Probe(held=True)
    script = in_order(turn(probe.call("c1")), turn("Done."), turn("Done."), turn("Done."))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:

        async def listed(wanted: RunFilter) -> set[RunId]:
            found = await records.list_runs(replica.ctx, ANN, wanted, PageRequest())
            return {view.run.id for view in found}

        suspended = await paused_run(replica, probe)
        queued = await replica.start(thread_id=suspended.thread_id)
        await queued.pause()
        other = await replica.start()
        await other.ended()
        assert await listed(RunFilter(paused=True)) == {suspended.id, queued.id}
        assert await listed(RunFilter(paused=False)) == {other.id}
        manual = RunFilter(waiting_reason=WaitingReason.MANUAL_PAUSE)
        assert await listed(manual) == {suspended.id}
        assert await listed(RunFilter(waiting_reason=WaitingReason.RATE_LIMIT)) == set()
        await suspended.cancel()
        await suspended.ended()
        assert await listed(RunFilter(paused=True)) == {queued.id}
        assert await listed(RunFilter(paused=False)) == {other.id, suspended.id}
        assert await listed(manual) == set()
        await queued.resume()
        assert await listed(RunFilter(paused=True)) == set()


async def test_a_paused_queued_run_keeps_its_position_and_others_wait_behind_it(
    database_url: str,
) -> None:
    gate = Gate()
    script = in_order(turn("one", gate), turn("two"), turn("three"))
    async with open_replica(database_url, an_agent(), script) as replica:
        first = await replica.start("1")
        await reached(gate)
        second = await replica.start("2", thread_id=first.thread_id)
        third = await replica.start("3", thread_id=first.thread_id)
        await second.pause()
        gate.open.set()
        await first.ended()
        assert (await second.now()).state == Created(admitted=True)
        assert (await third.now()).state == Created(admitted=False)
        assert await assert_not_claimed(second)
        assert await reasons(third) == [ReasonCode.QUEUED_BEHIND_RUN, ReasonCode.THREAD_WAITING]
        await second.resume()
        await third.ended()
        texts = [text for role, text in texts_of(await first.log()) if role == "assistant"]
    assert texts == ["one", "two", "three"]


async def test_a_cancel_of_a_paused_run_admits_the_next_one(database_url: str) -> None:
    gate = Gate()
    script = in_order(turn("one", gate), turn("three"))
    async with open_replica(database_url, an_agent(), script) as replica:
        first = await replica.start("1")
        await reached(gate)
        second = await replica.start("2", thread_id=first.thread_id)
        third = await replica.start("3", thread_id=first.thread_id)
        await second.pause()
        gate.open.set()
        await first.ended()
        await second.cancel()
        assert (await third.ended())[-1]["termination"] == {"type": "natural_end"}


# --- a worker that dies ---------------------------------------------------------------------------


async def test_a_takeover_of_a_paused_run_suspends_it_within_the_message(database_url: str) -> None:
    gate = Gate()
    async with open_replica(database_url, an_agent(), in_order(turn("Hel", gate, "lo"))) as first:
        run = await first.start()
        await reached(gate)
        await run.until("text_delta")
        await run.pause("look first")
        await first.kill()
    script = in_order(turn("Hello"))
    async with open_replica(database_url, an_agent(), script) as second:
        run = second.same(run)
        emitted = await run.finished()
        assert (await run.now()).state == PAUSED
        assert types_of(emitted)[-4:] == [
            "stream_reset",
            "step_end",
            "state_snapshot",
            "run_finish",
        ]
        assert not script.requests
        await run.resume()
        emitted = await run.ended()
        check_run(emitted)
        assert texts_of(await run.log()) == [("user", "go"), ("assistant", "Hello")]
    assert types_of(emitted).count("run_start") == 2
    assert [one["step"] for one in of_type(emitted, "step_start")] == [1, 1]
    assert await broken_invariants(database_url) == {}


async def test_a_takeover_of_a_paused_run_keeps_the_calls_of_its_step(database_url: str) -> None:
    done, lost = Probe(name="done"), Probe(name="lost", held=True, effect="idempotent")
    script = in_order(turn(done.call("c1"), lost.call("c2")))
    catalog = an_agent(done.tool, lost.tool)
    async with open_replica(database_url, catalog, script) as first:
        run = await first.start()
        await lost.was_reached()
        await run.pause()
        await first.kill()
    lost.open.set()
    script = in_order(turn("Done."))
    async with open_replica(database_url, catalog, script) as second:
        run = second.same(run)
        await run.finished()
        assert (await run.now()).state == PAUSED
        assert len(lost.handed) == 1
        await run.resume()
        check_run(await run.ended())
    assert (len(done.handed), len(lost.handed), len(script.requests)) == (1, 2, 1)


async def test_a_resume_whose_claim_is_lost_is_found_by_the_sweeper(database_url: str) -> None:
    probe = Probe(held=True)
    script = in_order(turn(probe.call("c1")), turn("Done."))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await paused_run(replica, probe)
        await unpause(replica.ctx, ANN, run.id, deliver=False)
        await run.until("run_finish", 2)
        assert isinstance((await run.now()).state, Done)


async def test_a_pause_by_another_replica_is_read_by_the_next_commit(database_url: str) -> None:
    probe = Probe(held=True)
    script = in_order(turn(probe.call("c1")), turn("Done."))
    async with (
        open_replica(database_url, an_agent(probe.tool), script) as one,
        open_replica(database_url, an_agent(probe.tool), script) as other,
    ):
        run = await one.start()
        await probe.was_reached()
        await other.same(run).pause()
        probe.open.set()
        await run.finished()
        assert len(script.requests) == 1
        await other.same(run).resume()
        await run.ended()
        state = (await run.now()).state
    assert isinstance(state, Done)
    assert state.termination == NaturalEnd()


# --- plugins --------------------------------------------------------------------------------------


def once(phase: Phase, *requests: Request) -> Hooks:
    """A plugin that makes one request, the first time it is called in a phase."""
    left = [requests]
    return Hooks({phase: lambda _: left.pop() if left else ()}, name="guard")


@pytest.mark.parametrize(
    ("phase", "requests_before"),
    [
        (Phase.RUN_START, 0),
        (Phase.STEP_START, 0),
        (Phase.BEFORE_INFERENCE, 1),
        (Phase.AFTER_TOOL_EXECUTE, 1),
        (Phase.STEP_END, 1),
    ],
)
async def test_a_plugin_may_pause_its_run(
    database_url: str, phase: Phase, requests_before: int
) -> None:
    probe, guard = Probe(), once(phase, Pause("too much of it"), Pause("again"))
    script = in_order(turn(probe.call("c1")), turn("Done."))
    catalog = an_agent(probe.tool, plugins=[guard.plugin])
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        waiting = await run.now()
        assert waiting.state == PAUSED
        assert waiting.pause is not None
        assert (waiting.pause.requested_by, waiting.pause.reason) == (
            "plugin:guard",
            "too much of it",
        )
        assert len(script.requests) == requests_before
        [requested] = of_type(emitted, "pause_requested")
        assert (requested["requested_by"], requested["reason"]) == (
            "plugin:guard",
            "too much of it",
        )
        assert await assert_not_claimed(run)
        await run.resume()
        emitted = await run.ended()
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert len(of_type(emitted, "pause_requested")) == 1
    assert len(probe.handed) == 1
    assert await broken_invariants(database_url) == {}


async def test_a_plugins_pause_persists_in_a_run_that_suspends_for_a_ticket(
    database_url: str,
) -> None:
    probe = Probe()
    guard = once(Phase.AFTER_INFERENCE, Pause("look first"))
    script = in_order(turn(probe.call("c1")), turn("Done."))
    catalog = an_agent(probe.tool, approval=["probe"], plugins=[guard.plugin])
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.finished()
        assert (await run.now()).is_paused
        await run.decide("c1", "approve")
        assert await assert_not_claimed(run)
        await run.resume()
        await run.ended()


async def test_an_earlier_pause_request_is_not_replaced_by_a_plugins_pause(
    database_url: str,
) -> None:
    probe = Probe(held=True)
    guard = once(Phase.AFTER_TOOL_EXECUTE, Pause("by the plugin"))
    script = in_order(turn(probe.call("c1")), turn("Done."))
    catalog = an_agent(probe.tool, plugins=[guard.plugin])
    async with open_replica(database_url, catalog, script) as replica:
        run = await paused_run(replica, probe)
        emitted = await run.finished()
        pause = (await run.now()).pause
    assert pause is not None
    assert pause.requested_by == "ann"
    assert len(of_type(emitted, "pause_requested")) == 1
