"""Runs that wait for their background tasks."""

import pytest

from app.domain.runs.runs import Waiting, WaitingReason
from app.domain.threads.messages import Visibility
from app.llm.scripted.model import in_order, turn
from app.runtime.plugins import Phase
from tests.support.conditions import eventually
from tests.support.hooks import watching
from tests.support.probes import Probe
from tests.support.replicas import Run, an_agent, of_type, open_replica

pytestmark = pytest.mark.anyio


async def has_reported(run: Run) -> bool:
    record = await run.now()
    return record.open_tasks == 0 and record.unread_inputs == 1


async def test_awaiting_tasks_prevents_done_when_tasks_running(database_url: str) -> None:
    """The reference ends such an activation with `natural_end`; Holdfast with `suspended`, as each suspension."""
    probe = Probe(name="slow", held=True)
    script = in_order(turn(probe.call("c1")), turn("I wait."), turn("Done."))
    async with open_replica(
        database_url, an_agent(probe.tool, background=["slow"]), script
    ) as replica:
        run = await replica.start()
        emitted = await run.finished()
        state = (await run.now()).state
        lifecycle = of_type(emitted, "state_snapshot")[-1]["snapshot"]["extensions"]
        probe.open.set()
        await run.finished(2)
    assert state == Waiting(WaitingReason.BACKGROUND_TASKS, "awaiting_tasks")
    assert emitted[-1]["termination"] == {"type": "suspended"}
    assert lifecycle["__runtime.run_lifecycle"]["status_reason"] == "awaiting_tasks"


async def test_run_end_hooks_are_called_once_after_the_last_task_has_ended(
    database_url: str,
) -> None:
    probe, witness = Probe(name="slow", held=True), watching(Phase.RUN_END)
    script = in_order(turn(probe.call("c1")), turn("I wait."), turn("Done."))
    agent = an_agent(probe.tool, background=["slow"], plugins=[witness.plugin])
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        assert witness.seen == []
        probe.open.set()
        await run.finished(2)
    assert witness.phases == [Phase.RUN_END]


async def test_awaiting_tasks_preserves_step_count_and_final_step_should_complete_once(
    database_url: str,
) -> None:
    probe = Probe(name="slow", held=True)
    script = in_order(turn(probe.call("c1")), turn("I wait."), turn("Done."))
    async with open_replica(
        database_url, an_agent(probe.tool, background=["slow"]), script
    ) as replica:
        run = await replica.start()
        emitted = await run.finished()
        assert ((await run.now()).steps, len(of_type(emitted, "step_end"))) == (2, 2)
        probe.open.set()
        emitted = await run.finished(2)
        assert ((await run.now()).steps, len(of_type(emitted, "step_end"))) == (3, 3)


async def test_inbox_messages_injected_before_natural_end(database_url: str) -> None:
    probe = Probe(name="slow")
    script = in_order(turn(probe.call("c1")), turn("I wait."), turn("Done."), turn("Done again."))
    async with open_replica(
        database_url, an_agent(probe.tool, background=["slow"]), script
    ) as replica:
        run = await replica.start()
        emitted = await run.finished()
        if emitted[-1]["termination"]["type"] == "suspended":
            emitted = await run.finished(2)
        log = await run.log()
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    [event] = [entry.message for entry in log if entry.message.visibility is Visibility.INTERNAL]
    assert event.text.startswith('<background-task-event outcome="succeeded"')
    assert any(event.text in message.text for message in script.requests[-1].messages)


async def test_background_events_buffer_while_suspended_until_decision_arrives(
    database_url: str,
) -> None:
    slow, risky = Probe(name="slow"), Probe(name="risky")
    script = in_order(turn(slow.call("c1"), risky.call("c2")), turn("Done."))
    agent = an_agent(slow.tool, risky.tool, background=["slow"], approval=["risky"])
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        await eventually(lambda: has_reported(run))
        assert len(script.requests) == 1
        await run.decide("perm_c2", "approve")
        emitted = await run.ended()
    assert emitted[-1]["result"]["response"] == "Done."
    assert len(script.requests) == 2
