"""Background tasks: a call executes apart from its run, which waits without a worker and gets its end."""

import asyncio
import json
import re
from collections.abc import Sequence

import pytest

from app.agents.catalog import Catalog
from app.commands.followups.background_tasks import cancel_task, list_tasks
from app.domain.agents.specs import ToolExecution
from app.domain.children.background_tasks import OUTCOME_UNKNOWN, Task, TaskFilter, TaskStatus
from app.domain.errors import NotFound
from app.domain.ids import TaskId, Tenant
from app.domain.principals import Principal
from app.domain.runs.runs import Done, RunStatus, Waiting, WaitingReason
from app.domain.runs.terminations import Cancelled, NaturalEnd
from app.domain.slices import PageRequest
from app.domain.threads.messages import Role, Visibility
from app.domain.tools.reconciliation import DidNotHappen
from app.llm.scripted.model import Call, Gate, ScriptedTurn, in_order, turn
from app.runtime.ports.models import ModelRequest
from app.runtime.ports.tool_context import ToolContext
from app.storage.runs.runs import RunKey
from app.tools.functions.decorator import tool
from tests.support.conditions import eventually
from tests.support.invariants import broken_invariants
from tests.support.probes import Probe
from tests.support.replicas import ANN, Replica, Run, an_agent, of_type, open_replica, types_of

pytestmark = pytest.mark.anyio

_EVENT = re.compile(
    r'<background-task-event outcome="(\w+)" task_id="(bg_[0-9a-f-]{36})">(.*)</background-task-event>'
)


async def tasks_of(run: Run) -> list[Task]:
    found = await list_tasks(run.replica.ctx, ANN, run.id, TaskFilter(), PageRequest())
    return list(reversed(found))


async def task_with_status(run: Run, status: TaskStatus) -> Task:
    """The run's only task, once it has that status."""

    async def task_now() -> Task | None:
        found = await tasks_of(run)
        return found[0] if [task.status for task in found] == [status] else None

    return await eventually(task_now)


async def test_a_run_waits_for_its_task_and_resumes_at_its_end(database_url: str) -> None:
    probe = Probe(name="slow", held=True)
    script = in_order(turn(probe.call("c1", "it")), turn("I will wait."), turn("It is done."))
    async with open_replica(
        database_url, an_agent(probe.tool, background=["slow"]), script
    ) as replica:
        run = await replica.start()
        emitted = await run.finished()
        waiting = await run.now()
        [task] = await tasks_of(run)
        assert waiting.state == Waiting(WaitingReason.BACKGROUND_TASKS, "awaiting_tasks")
        assert (waiting.steps, len(of_type(emitted, "step_end"))) == (2, 2)
        assert emitted[-1]["termination"] == {"type": "suspended"}
        assert emitted[-1]["waiting"]["reason"] == "background_tasks"
        assert emitted[-1]["waiting"]["tickets"] == []
        assert not replica.worker.executing, "the waiting run holds no worker"
        await probe.was_reached()
        assert await broken_invariants(database_url) == {}
        probe.open.set()
        emitted = await run.finished(2)
        done = await run.now()
        log = await run.log()
    assert isinstance(done.state, Done)
    assert done.state.termination == NaturalEnd()
    assert done.state.final_output == "It is done."
    assert (done.steps, done.open_tasks, done.unread_inputs) == (3, 0, 0)
    started = json.loads(log[2].message.text)
    assert started == {"task_id": task.id, "status": "running"}
    event = log[4].message
    assert (event.role, event.visibility) == (Role.USER, Visibility.INTERNAL)
    found = _EVENT.fullmatch(event.text)
    assert found is not None
    assert found.groups()[:2] == ("succeeded", task.id)
    assert json.loads(found[3]) == {
        "task_id": task.id,
        "tool_name": "slow",
        "result": "slow did it",
    }
    assert script.requests[2].messages[-1].text == event.text
    assert [one["step"] for one in of_type(emitted, "step_start")] == [1, 2, 3]
    assert types_of(emitted).count("run_start") == 2
    assert len(of_type(emitted, "input_queued")) == 1
    assert probe.handed[0].idempotency_key == f"{run.id}:0:c1"
    assert await broken_invariants(database_url) == {}


async def test_a_task_that_ends_while_the_run_executes_is_read_before_the_runs_end(
    database_url: str,
) -> None:
    probe, gate = Probe(name="quick"), Gate()
    script = in_order(turn(probe.call("c1")), turn("Meanwhile", gate), turn("Now I know."))
    async with open_replica(
        database_url, an_agent(probe.tool, background=["quick"]), script
    ) as replica:
        run = await replica.start()
        await task_with_status(run, TaskStatus.SUCCEEDED)
        gate.open.set()
        emitted = await run.finished()
        log = await run.log()
        record = await run.now()
    assert len(of_type(emitted, "run_finish")) == 1, "no task was left to wait for"
    assert record.steps == 3
    assert [entry.message.role.value for entry in log] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert _EVENT.fullmatch(script.requests[2].messages[-1].text)


async def test_a_task_that_ends_during_a_step_enters_the_log_at_the_step_border(
    database_url: str,
) -> None:
    probe, other, gate = Probe(name="quick"), Probe(name="other"), Gate()
    script = in_order(turn(probe.call("c1")), turn(gate, other.call("c2")), turn("Both are done."))
    agent = an_agent(probe.tool, other.tool, background=["quick"])
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await task_with_status(run, TaskStatus.SUCCEEDED)
        gate.open.set()
        await run.finished()
        log = await run.log()
    assert [message.role.value for message in script.requests[2].messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "user",
    ]
    assert _EVENT.fullmatch(log[5].message.text)
    assert len(script.requests) == 3


async def test_ends_of_tasks_wait_while_a_ticket_is_open(database_url: str) -> None:
    probe, risky = Probe(name="slow", held=True), Probe(name="risky")
    script = in_order(turn(probe.call("c1"), risky.call("c2")), turn("All done."))
    agent = an_agent(probe.tool, risky.tool, background=["slow"], approval=["risky"])
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        probe.open.set()
        await task_with_status(run, TaskStatus.SUCCEEDED)
        resting = await run.now()
        assert resting.state == Waiting(WaitingReason.TOOL_PERMISSION, "suspended")
        assert resting.unread_inputs == 1
        await run.decide("c2", "approve")
        emitted = await run.finished(2)
    assert len(script.requests) == 2, "there were two inferences"
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    [event] = [m for m in script.requests[1].messages if _EVENT.fullmatch(m.text)]
    assert event.role is Role.USER


async def test_a_background_call_passes_the_gate_like_any_other(database_url: str) -> None:
    probe = Probe(name="slow")
    script = in_order(turn(probe.call("c1")), turn("Waiting."), turn("Done."))
    agent = an_agent(probe.tool, background=["slow"], approval=["slow"])
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        assert await tasks_of(run) == []
        await run.decide("perm_c1", "edit", arguments={"text": "less"})
        await run.until("inference_complete", 3)
        [task] = await tasks_of(run)
    assert task.arguments == {"text": "less"}
    assert [one.text for one in probe.handed] == ["less"]


async def test_a_parallel_background_call_starts_its_task_once_its_result_is_reported(
    database_url: str,
) -> None:
    """Its call is the second. Until the first has its result, a crash would start the task again."""
    first_call, slow = Probe(name="first", held=True, effect="read"), Probe(name="slow")
    agent = an_agent(
        first_call.tool,
        slow.tool,
        background=["slow"],
        tool_execution=ToolExecution.PARALLEL,
    )
    calls = turn(first_call.call("c1"), slow.call("c2"))
    async with open_replica(database_url, agent, in_order(calls)) as lost:
        run = await lost.start()
        await first_call.was_reached()
        assert await tasks_of(run) == []
        await lost.kill()
    first_call.open.set()
    script = in_order(turn("Waiting."), turn("Done."))
    async with open_replica(database_url, agent, script) as second:
        run = second.same(run)

        async def look() -> bool:
            return (await run.now()).is_done

        await eventually(look)
        [task] = await tasks_of(run)
        log = await run.log()
    assert task.call_id == "c2"
    assert [entry.message.tool_call_id for entry in log[2:4]] == ["c1", "c2"]
    assert len(slow.handed) == 1
    assert await broken_invariants(database_url) == {}


async def test_several_tasks_are_reported_one_after_the_other_and_once_each(
    database_url: str,
) -> None:
    probes = [Probe(name=f"slow{n}", held=True) for n in range(3)]
    calls = turn(*[probe.call(f"c{n}") for n, probe in enumerate(probes)])
    script = in_order(calls, turn("Waiting."), turn("One."), turn("Two."), turn("Three."))
    agent = an_agent(*[p.tool for p in probes], background=[p.name for p in probes])
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        for finishes, probe in enumerate(probes, 1):
            emitted = await run.finished(finishes)
            assert emitted[-1]["waiting"]["reason"] == "background_tasks"
            probe.open.set()
        emitted = await run.finished(4)
        log = await run.log()
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    reported = [found[2] for entry in log if (found := _EVENT.fullmatch(entry.message.text))]
    assert len(set(reported)) == 3
    assert len(script.requests) == 5
    assert await broken_invariants(database_url) == {}


async def test_a_background_tool_that_fails_or_suspends_fails_its_task(database_url: str) -> None:
    @tool
    async def broken() -> str:
        raise RuntimeError("no paper")

    asking = Probe(name="asking", asks=1)
    script = in_order(
        turn(Call(tool="broken", arguments={}), asking.call("c2")), *[turn("I see.")] * 4
    )
    agent = an_agent(broken, asking.tool, background=["broken", "asking"])
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()

        async def look() -> bool:
            return (await run.now()).is_done

        await eventually(look)
        first, second = await tasks_of(run)
    assert (first.status, second.status) == (TaskStatus.FAILED, TaskStatus.FAILED)
    assert "no paper" in (first.error or "")
    assert "can't ask a person" in (second.error or "")


# --- lost workers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["read", "idempotent"])
async def test_a_task_that_may_be_rerun_is_rerun_under_its_key(
    database_url: str, effect: str
) -> None:
    probe = Probe(name="slow", held=True)
    probe.effect = "read" if effect == "read" else "idempotent"
    agent = an_agent(probe.tool, background=["slow"])
    async with open_replica(
        database_url, agent, in_order(turn(probe.call("c1")), turn("Waiting."))
    ) as first:
        run = await first.start()
        await run.finished()
        await probe.was_reached()
        await first.kill()
    probe.open.set()
    async with open_replica(database_url, agent, in_order(turn("Done."))) as second:
        run = second.same(run)
        await run.finished(2)
        task = await task_with_status(run, TaskStatus.SUCCEEDED)
    assert (task.attempt, task.losses) == (2, 1)
    assert len(probe.handed) == 2
    assert probe.handed[0] == probe.handed[1]


async def test_an_unsafe_task_is_never_rerun(database_url: str) -> None:
    probe = Probe(name="slow", held=True)
    agent = an_agent(probe.tool, background=["slow"])
    async with open_replica(
        database_url, agent, in_order(turn(probe.call("c1")), turn("Waiting."))
    ) as first:
        run = await first.start()
        await run.finished()
        await probe.was_reached()
        await first.kill()
    probe.open.set()
    script = in_order(turn("What a pity."))
    async with open_replica(database_url, agent, script) as second:
        run = second.same(run)
        await run.finished(2)
        task = await task_with_status(run, TaskStatus.FAILED)
    assert task.error == OUTCOME_UNKNOWN
    assert len(probe.handed) == 1
    assert OUTCOME_UNKNOWN in script.requests[0].messages[-1].text


async def test_a_task_that_crashes_every_worker_is_given_up_without_reconciling(
    database_url: str,
) -> None:
    """Its reconciler isn't called either, because that may cause the crashes."""
    asked: list[str] = []

    def reconcile(key: str) -> DidNotHappen:
        asked.append(key)
        return DidNotHappen()

    probe = Probe(name="slow", effect="read", held=True, reconcile=reconcile)
    agent = an_agent(probe.tool, background=["slow"])
    script = in_order(turn(probe.call("c1")), turn("Waiting."))
    async with open_replica(database_url, agent, script) as first:
        run = await first.start()
        await run.finished()
        await probe.was_reached()
        await first.database.pool.execute("UPDATE tasks SET losses = 4")
        await first.kill()
    probe.reached.clear()
    async with open_replica(database_url, agent, script) as second:
        await probe.was_reached()
        assert len(asked) == 1
        await second.kill()
    async with open_replica(database_url, agent, in_order(turn("A pity."))) as third:
        run = third.same(run)
        await run.finished(2)
        task = await task_with_status(run, TaskStatus.FAILED)
    assert task.error == "6 workers were lost over this task"
    assert (len(probe.handed), len(asked)) == (2, 1)


async def suspects(url: str, agent: Catalog, probes: Sequence[Probe]) -> list[Run]:
    """Two tasks and an executing run that have lost enough workers to be suspects."""
    calls = [turn(probe.call("c1")) for probe in probes]
    script = in_order(calls[0], turn("Waiting."), calls[1], turn("Waiting."), calls[2])
    found = []
    async with open_replica(url, agent, script) as replica:
        for probe in probes:
            found.append(await replica.start())
            await probe.was_reached()
            if probe is not probes[-1]:
                await found[-1].finished()
            probe.reached.clear()
        await replica.database.pool.execute("UPDATE tasks SET losses = 2")
        await replica.database.pool.execute("UPDATE runs SET losses = 2 WHERE status = 'running'")
        await replica.kill()
    return found


def suspicious_probes() -> list[Probe]:
    return [Probe(name=name, effect="read", held=True) for name in ("one", "other", "third")]


async def test_tasks_and_runs_that_lost_several_workers_are_not_executed_together(
    database_url: str,
) -> None:
    """A suspect that crashes its worker can't affect another, and work without losses doesn't wait."""
    probes, innocent = suspicious_probes(), Probe(name="innocent")
    tools = [probe.tool for probe in (*probes, innocent)]
    agent = an_agent(*tools, background=["one", "other", "innocent"])
    runs = await suspects(database_url, agent, probes)
    script = in_order(turn(innocent.call("c1")), turn("Waiting."), *(turn("Done.") for _ in "1234"))
    async with open_replica(database_url, agent, script) as replica:

        async def executing() -> list[Probe]:
            return [probe for probe in probes if probe.reached.is_set()]

        await eventually(executing)
        beside = await replica.start()
        await task_with_status(beside, TaskStatus.SUCCEEDED)
        for number in range(1, len(probes) + 1):

            async def task_of_other(number: int = number) -> list[Probe] | None:
                found = await executing()
                return found if len(found) == number else None

            for probe in await eventually(task_of_other):
                probe.open.set()
        for run in runs:
            await replica.same(run).ended()
        ended = [task for run in runs for task in await tasks_of(replica.same(run))]
    assert [(task.status, task.losses) for task in ended] == [(TaskStatus.SUCCEEDED, 3)] * 2
    assert [len(probe.handed) for probe in probes] == [2, 2, 2]


async def test_a_suspect_task_without_a_further_crash_delays_others_for_a_bounded_time(
    database_url: str,
) -> None:
    probes = suspicious_probes()
    agent = an_agent(*(probe.tool for probe in probes), background=["one", "other"])
    runs = await suspects(database_url, agent, probes)
    async with open_replica(
        database_url, agent, in_order(*(turn("Done.") for _ in "123"))
    ) as replica:
        replica.tasks._trusted_after = 0.0
        # Only progress clears the run's losses.
        probes[-1].open.set()
        for probe in probes:
            await probe.was_reached()
        for probe in probes:
            probe.open.set()
        for run in runs:
            await replica.same(run).ended()


@pytest.mark.parametrize("effect", ["idempotent", "unsafe"])
async def test_a_stopping_worker_hands_over_repeatable_tasks(
    database_url: str, effect: str
) -> None:
    probe = Probe(name="slow", held=True)
    probe.effect = "unsafe" if effect == "unsafe" else "idempotent"
    agent = an_agent(probe.tool, background=["slow"])
    async with open_replica(
        database_url, agent, in_order(turn(probe.call("c1")), turn("Waiting."))
    ) as first:
        run = await first.start()
        await run.finished()
        await probe.was_reached()
    probe.open.set()
    async with open_replica(database_url, agent, in_order(turn("Done."))) as second:
        run = second.same(run)
        await run.finished(2)
        [task] = await tasks_of(run)
    assert task.losses == 0
    if effect == "unsafe":
        assert (task.error, len(probe.handed)) == (OUTCOME_UNKNOWN, 1)
    else:
        assert (task.status, len(probe.handed)) == (TaskStatus.SUCCEEDED, 2)


async def test_a_delivery_without_a_reason_suspends_the_run_without_an_inference(
    database_url: str,
) -> None:
    probe = Probe(name="slow", held=True)
    script = in_order(turn(probe.call("c1")), turn("Waiting."), turn("Done."))
    async with open_replica(
        database_url, an_agent(probe.tool, background=["slow"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        record = await run.now()
        key = RunKey(record.tenant, record.thread_id, record.id, record.attempt)
        assert replica.worker.slots.reserve()
        assert await replica.worker.claim_and_launch(key, None)
        emitted = await run.finished(2)
        assert len(script.requests) == 2
        assert emitted[-1]["waiting"]["reason"] == "background_tasks"
        probe.open.set()
        await run.finished(3)
    assert len(script.requests) == 3


# --- cancelling -----------------------------------------------------------------------------------


async def test_cancelling_a_waiting_run_cancels_its_tasks(database_url: str) -> None:
    probe = Probe(name="slow", held=True)
    script = in_order(turn(probe.call("c1")), turn("Waiting."))
    async with open_replica(
        database_url, an_agent(probe.tool, background=["slow"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        await probe.was_reached()
        assert (await run.cancel()).is_done
        [task] = await tasks_of(run)
        assert task.status is TaskStatus.CANCELLED

        async def look() -> bool:
            return not replica.tasks.executing

        await eventually(look)
        assert len(await run.log()) == 4, "the end of the task starts no run"
    assert await broken_invariants(database_url) == {}


async def test_cancelling_an_executing_run_cancels_its_tasks(database_url: str) -> None:
    probe, gate = Probe(name="slow", held=True), Gate()
    script = in_order(turn(probe.call("c1")), turn("Meanwhile", gate))
    async with open_replica(
        database_url, an_agent(probe.tool, background=["slow"]), script
    ) as replica:
        run = await replica.start()
        await asyncio.wait_for(gate.reached.wait(), 15)
        await run.cancel("enough")
        await run.finished()
        record = await run.now()
        [task] = await tasks_of(run)
    assert isinstance(record.state, Done)
    assert record.state.termination == Cancelled("enough")
    assert (task.status, record.open_tasks) == (TaskStatus.CANCELLED, 0)
    assert await broken_invariants(database_url) == {}


async def test_tasks_of_a_lost_worker_are_cancelled_as_well(database_url: str) -> None:
    probe = Probe(name="slow", held=True, effect="read")
    agent = an_agent(probe.tool, background=["slow"])
    script = in_order(turn(probe.call("c1")), turn("Waiting."))
    async with open_replica(database_url, agent, script) as first:
        run = await first.start()
        await run.finished()
        await probe.was_reached()
        await first.kill()
    async with open_replica(database_url, agent, in_order()) as second:
        run = second.same(run)
        await second.take_nothing_new()
        await run.cancel()
        [task] = await tasks_of(run)
        assert task.status is TaskStatus.CANCELLED
        assert await second.sweeper.run_once() == 0, "no sweep delivers the run again"
    assert len(probe.handed) == 1


async def test_a_task_that_ends_after_its_run_stores_its_result_and_starts_no_run(
    database_url: str,
) -> None:
    probe = Probe(name="slow", held=True)
    script = in_order(turn(probe.call("c1")))
    agent = an_agent(probe.tool, background=["slow"], max_rounds=1)
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        assert emitted[-1]["termination"]["type"] == "stopped"
        await probe.was_reached()
        probe.open.set()
        task = await task_with_status(run, TaskStatus.SUCCEEDED)
        record = await run.now()
        events = await run.until("run_finish")
    assert (task.result, task.reported_at) == ("slow did it", None)
    assert (record.status, record.open_tasks) == (RunStatus.DONE, 0)
    assert types_of(events)[-1] == "run_finish"
    assert await broken_invariants(database_url) == {}


async def test_a_client_can_cancel_a_task_and_its_run_gets_the_end(database_url: str) -> None:
    probe = Probe(name="slow", held=True)
    script = in_order(turn(probe.call("c1")), turn("Waiting."), turn("All right."))
    async with open_replica(
        database_url, an_agent(probe.tool, background=["slow"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        await probe.was_reached()
        [task] = await tasks_of(run)
        cancelled = await cancel_task(replica.ctx, ANN, run.id, task.id)
        again = await cancel_task(replica.ctx, ANN, run.id, task.id)
        emitted = await run.finished(2)
        await _is_foreign(replica, run, task)
    assert cancelled == again
    assert cancelled.status is TaskStatus.CANCELLED
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert 'outcome="cancelled"' in script.requests[2].messages[-1].text


async def _is_foreign(replica: Replica, run: Run, task: Task) -> None:
    other_principal = Principal(Tenant("other"), "eve", ANN.scopes)
    with pytest.raises(NotFound):
        await cancel_task(replica.ctx, other_principal, run.id, task.id)
    with pytest.raises(NotFound):
        await list_tasks(replica.ctx, other_principal, run.id, TaskFilter(), PageRequest())
    with pytest.raises(NotFound):
        await cancel_task(replica.ctx, ANN, run.id, TaskId("bg_no"))


# --- tools of the model for its tasks -------------------------------------------------------------


def named_task(request: ModelRequest) -> str:
    """The task that the first tool result of the transcript names."""
    first = next(message for message in request.messages if message.role is Role.TOOL)
    task_id: str = json.loads(first.text)["task_id"]
    return task_id


async def test_the_model_can_cancel_a_task(database_url: str) -> None:
    probe = Probe(name="slow", held=True)

    def script(request: ModelRequest) -> ScriptedTurn:
        match sum(message.role is Role.ASSISTANT for message in request.messages):
            case 0:
                assert {"cancel_task", "send_message"} <= {one.name for one in request.tools}
                return turn(probe.call("c1"))
            case 1:
                return turn(Call(tool="cancel_task", arguments={"task_id": named_task(request)}))
            case _:
                return turn("Never mind.")

    async with open_replica(
        database_url, an_agent(probe.tool, background=["slow"]), script
    ) as replica:
        run = await replica.start()
        emitted = await run.finished()
        [task] = await tasks_of(run)
        log = await run.log()
    assert task.status is TaskStatus.CANCELLED
    assert task.reported_at is not None
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert json.loads(log[4].message.text) == {
        "task_id": task.id,
        "status": "done",
        "outcome": "cancelled",
    }
    assert not any(_EVENT.fullmatch(entry.message.text) for entry in log)
    assert await broken_invariants(database_url) == {}


async def test_a_task_reads_what_the_model_sends_to_it(database_url: str) -> None:
    received: list[str] = []
    began, sent = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def slow(ctx: ToolContext) -> str:
        began.set()
        await asyncio.wait_for(sent.wait(), 15)
        received.extend(await ctx.messages())
        received.extend(await ctx.messages())
        return " and ".join(received)

    def script(request: ModelRequest) -> ScriptedTurn:
        match sum(message.role is Role.ASSISTANT for message in request.messages):
            case 0:
                return turn(Call(tool="slow", arguments={}))
            case 1 | 2 as batch:
                reported = {"task_id": named_task(request), "message": f"number {batch}"}
                return turn(Call(tool="send_message", arguments=reported))
            case _:
                return turn("So be it.")

    async with open_replica(database_url, an_agent(slow, background=["slow"]), script) as replica:
        run = await replica.start()
        await run.finished()
        log = await run.log()
        await asyncio.wait_for(began.wait(), 15)
        sent.set()
        task = await task_with_status(run, TaskStatus.SUCCEEDED)
    assert json.loads(log[4].message.text)["kept"] is True
    assert task.result == "number 1 and number 2"
    assert task.unread_messages == 0


async def test_messages_that_a_task_never_read_are_named_in_its_end(database_url: str) -> None:
    probe = Probe(name="slow", held=True)

    def script(request: ModelRequest) -> ScriptedTurn:
        match sum(message.role is Role.ASSISTANT for message in request.messages):
            case 0:
                return turn(probe.call("c1"))
            case 1:
                reported = {"task_id": named_task(request), "message": "hurry"}
                return turn(Call(tool="send_message", arguments=reported))
            case _:
                return turn("So be it.")

    async with open_replica(
        database_url, an_agent(probe.tool, background=["slow"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        probe.open.set()
        await run.finished(2)
        log = await run.log()
    found = [match for entry in log if (match := _EVENT.fullmatch(entry.message.text))]
    assert json.loads(found[0][3])["unread_messages"] == 1


async def test_a_run_reaches_its_own_tasks_only(database_url: str) -> None:
    mine, theirs = Probe(name="slow", held=True), ""

    def script(request: ModelRequest) -> ScriptedTurn:
        if request.messages[-1].role is Role.TOOL:
            return turn(request.messages[-1].text)
        if theirs:
            return turn(Call(tool="cancel_task", arguments={"task_id": theirs}))
        return turn(mine.call("c1"))

    async with open_replica(
        database_url, an_agent(mine.tool, background=["slow"]), script
    ) as replica:
        first = await replica.start()
        await first.finished()
        [task] = await tasks_of(first)
        theirs = task.id
        second = await replica.start()
        await second.finished()
        log = await second.log()
        assert (await task_with_status(first, TaskStatus.RUNNING)).id == theirs
    assert "no task" in log[2].message.text


async def test_a_task_shows_its_progress_while_its_run_waits(database_url: str) -> None:
    may_continue = asyncio.Event()

    @tool(effect="read")
    async def slow(ctx: ToolContext) -> str:
        await asyncio.wait_for(may_continue.wait(), 15)
        ctx.progress(0.1, "begun")
        ctx.progress(0.5, "halfway")
        ctx.stream_output("a line of output")
        ctx.progress(1.0, "there")
        return "done"

    script = in_order(turn(Call(tool="slow", arguments={})), turn("Waiting."), turn("I see."))
    async with open_replica(database_url, an_agent(slow, background=["slow"]), script) as replica:
        run = await replica.start()
        await run.finished()
        may_continue.set()
        emitted = await run.finished(2)
        [task] = await tasks_of(run)
    shown = of_type(emitted, "activity_snapshot")
    assert [one["content"]["message"] for one in shown] == ["there"], (
        "the newest value replaces the others"
    )
    assert shown[0]["message_id"] == task.call_id
    assert "step" not in shown[0]
    assert types_of(emitted).index("run_finish") < types_of(emitted).index("activity_snapshot")
    assert types_of(emitted).index("activity_snapshot") < types_of(emitted).index("input_queued")


async def test_a_task_shows_each_change_of_an_activity_once_and_in_order(database_url: str) -> None:
    may_continue = asyncio.Event()

    @tool(effect="read")
    async def slow(ctx: ToolContext) -> str:
        ctx.activity("plan", {"dropped": True})
        ctx.activity_delta("plan", {"op": "add", "path": "/dropped", "value": 2})
        ctx.activity("plan", {"steps": []})
        ctx.activity_delta("plan", {"op": "add", "path": "/steps/-", "value": 1})
        await asyncio.wait_for(may_continue.wait(), 15)
        ctx.activity_delta("plan", {"op": "add", "path": "/steps/-", "value": 2})
        ctx.activity("other", "beside it")
        ctx.activity_delta("plan", {"op": "add", "path": "/steps/-", "value": 3})
        return "done"

    script = in_order(turn(Call(tool="slow", arguments={})), turn("Waiting."), turn("I see."))
    async with open_replica(database_url, an_agent(slow, background=["slow"]), script) as replica:
        run = await replica.start()
        await run.finished()
        may_continue.set()
        emitted = await run.finished(2)
    [snapshot] = [one for one in emitted if one.get("content") == {"steps": []}]
    deltas = of_type(emitted, "activity_delta")
    assert [one["patch"][0]["value"] for one in deltas] == [1, 2, 3]
    assert snapshot["seq"] < deltas[0]["seq"]
    assert {one["message_id"] for one in deltas} == {snapshot["message_id"]}
    assert all("step" not in one for one in deltas)


# --- lost deliveries ------------------------------------------------------------------------------


async def test_a_task_without_a_delivery_is_found(database_url: str) -> None:
    probe = Probe(name="slow")
    agent = an_agent(probe.tool, background=["slow"])
    script = in_order(turn(probe.call("c1")), turn("Waiting."), turn("Done."))
    async with open_replica(database_url, agent, script) as replica:
        await replica.take_nothing_new()
        run = await replica.start()
        await run.finished()
        await replica.database.pool.execute("DELETE FROM pgq.pgqueuer")
        await replica.database.pool.execute(
            "UPDATE tasks SET updated_at = now() - interval '1 min'"
        )
    async with open_replica(database_url, agent, script) as other:
        run = other.same(run)
        await run.finished(2)


async def test_a_report_without_a_delivery_is_found(database_url: str) -> None:
    probe = Probe(name="slow", held=True)
    agent = an_agent(probe.tool, background=["slow"])
    script = in_order(turn(probe.call("c1")), turn("Waiting."), turn("Done."))
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        await probe.was_reached()
        await replica.take_nothing_new()
        probe.open.set()
        await task_with_status(run, TaskStatus.SUCCEEDED)
        await replica.database.pool.execute("DELETE FROM pgq.pgqueuer")
        await replica.database.pool.execute("UPDATE runs SET updated_at = now() - interval '1 min'")
    async with open_replica(database_url, agent, script) as other:
        run = other.same(run)
        await run.finished(2)
