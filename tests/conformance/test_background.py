"""Runs that wait for their background tasks."""

import pytest

from app.domain.runs.runs import Waiting, WaitingReason
from app.domain.threads.messages import Visibility
from app.llm.scripted.model import in_order, turn
from tests.support.conditions import eventually
from tests.support.house import Run, an_agent, of_type, replica
from tests.support.probes import Probe

pytestmark = pytest.mark.anyio


async def has_reported(run: Run) -> bool:
    record = await run.now()
    return record.open_tasks == 0 and record.unread_inputs == 1


async def test_awaiting_tasks_prevents_done_when_tasks_running(database_url: str) -> None:
    """The original ends such an activation with `natural_end`; ours says `suspended`, as for every rest."""
    probe = Probe(name="slow", held=True)
    script = in_order(turn(probe.call("c1")), turn("I wait."), turn("Done."))
    async with replica(database_url, an_agent(probe.tool, background=["slow"]), script) as house:
        run = await house.start()
        said = await run.finished()
        state = (await run.now()).state
        lifecycle = of_type(said, "state_snapshot")[-1]["snapshot"]["extensions"]
        probe.open.set()
        await run.finished(2)
    assert state == Waiting(WaitingReason.BACKGROUND_TASKS, "awaiting_tasks")
    assert said[-1]["termination"] == {"type": "suspended"}
    assert lifecycle["__runtime.run_lifecycle"]["status_reason"] == "awaiting_tasks"


async def test_awaiting_tasks_preserves_step_count_and_final_step_should_complete_once(
    database_url: str,
) -> None:
    probe = Probe(name="slow", held=True)
    script = in_order(turn(probe.call("c1")), turn("I wait."), turn("Done."))
    async with replica(database_url, an_agent(probe.tool, background=["slow"]), script) as house:
        run = await house.start()
        said = await run.finished()
        assert ((await run.now()).steps, len(of_type(said, "step_end"))) == (2, 2)
        probe.open.set()
        said = await run.finished(2)
        assert ((await run.now()).steps, len(of_type(said, "step_end"))) == (3, 3)


async def test_inbox_messages_injected_before_natural_end(database_url: str) -> None:
    probe = Probe(name="slow")
    script = in_order(turn(probe.call("c1")), turn("I wait."), turn("Done."), turn("Done again."))
    async with replica(database_url, an_agent(probe.tool, background=["slow"]), script) as house:
        run = await house.start()
        said = await run.finished()
        if said[-1]["termination"]["type"] == "suspended":
            said = await run.finished(2)
        log = await run.log()
    assert said[-1]["termination"] == {"type": "natural_end"}
    [event] = [entry.message for entry in log if entry.message.visibility is Visibility.INTERNAL]
    assert event.text.startswith('<background-task-event kind="completed"')
    assert any(event.text in message.text for message in script.requests[-1].messages)


async def test_background_events_buffer_while_suspended_until_decision_arrives(
    database_url: str,
) -> None:
    slow, risky = Probe(name="slow"), Probe(name="risky")
    script = in_order(turn(slow.call("c1"), risky.call("c2")), turn("Done."))
    agent = an_agent(slow.tool, risky.tool, background=["slow"], approval=["risky"])
    async with replica(database_url, agent, script) as house:
        run = await house.start()
        await run.finished()
        await eventually(lambda: has_reported(run))
        assert len(script.requests) == 1
        await run.decide("perm_c2", "approve")
        said = await run.ended()
    assert said[-1]["result"]["response"] == "Done."
    assert len(script.requests) == 2
