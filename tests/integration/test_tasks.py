"""Background tasks: a call goes on by itself, its run waits for it without a worker, and hears of its end."""

import asyncio
import json
import re
from collections.abc import Sequence

import pytest

from app.agents.catalog import Catalog
from app.commands.followups.background_tasks import cancel_task, list_tasks
from app.domain.agents.specs import ToolExecution
from app.domain.children.background_tasks import OUTCOME_UNKNOWN, Task, TaskStatus
from app.domain.errors import NotFound
from app.domain.ids import TaskId, Tenant
from app.domain.principals import Principal
from app.domain.runs.runs import Done, RunStatus, Waiting, WaitingReason
from app.domain.runs.terminations import Cancelled, NaturalEnd
from app.domain.threads.messages import Role, Visibility
from app.domain.tools.reconciliation import DidNotHappen
from app.llm.scripted.model import Call, Gate, ScriptedTurn, in_order, turn
from app.runtime.ports import ModelRequest, ToolContext
from app.storage.runs.runs import RunKey
from app.tools.functions.decorator import tool
from tests.support.conditions import eventually
from tests.support.house import ANN, Replica, Run, an_agent, of_type, replica, types_of
from tests.support.invariants import broken_invariants
from tests.support.probes import Probe

pytestmark = pytest.mark.anyio

_EVENT = re.compile(
    r'<background-task-event kind="(\w+)" task_id="(bg_[0-9a-f-]{36})">(.*)</background-task-event>'
)


async def tasks_of(run: Run) -> list[Task]:
    found = await list_tasks(run.replica.ctx, ANN, run.id, before=None, limit=50)
    return list(reversed(found))


async def until(run: Run, status: TaskStatus) -> Task:
    """The run's only task, once it has that status."""

    async def look() -> Task | None:
        found = await tasks_of(run)
        return found[0] if [task.status for task in found] == [status] else None

    return await eventually(look)


async def test_a_run_waits_for_its_task_and_goes_on_when_it_reports(database_url: str) -> None:
    probe = Probe(name="slow", held=True)
    script = in_order(turn(probe.call("c1", "it")), turn("I will wait."), turn("It is done."))
    async with replica(database_url, an_agent(probe.tool, background=["slow"]), script) as house:
        run = await house.start()
        said = await run.finished()
        waiting = await run.now()
        [task] = await tasks_of(run)
        assert waiting.state == Waiting(WaitingReason.BACKGROUND_TASKS, "awaiting_tasks")
        assert (waiting.steps, len(of_type(said, "step_end"))) == (2, 2)
        assert said[-1]["termination"] == {"type": "suspended"}
        assert said[-1]["waiting"]["reason"] == "background_tasks"
        assert said[-1]["waiting"]["tickets"] == []
        assert not house.worker.executing, "it holds no worker"
        await probe.was_reached()
        assert await broken_invariants(database_url) == {}
        probe.open.set()
        said = await run.finished(2)
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
    assert found.groups()[:2] == ("completed", task.id)
    assert json.loads(found[3]) == {
        "task_id": task.id,
        "tool_name": "slow",
        "result": "slow did it",
    }
    assert script.requests[2].messages[-1].text == event.text
    assert [one["step"] for one in of_type(said, "step_start")] == [1, 2, 3]
    assert types_of(said).count("run_start") == 2
    assert len(of_type(said, "input_queued")) == 1
    assert probe.handed[0].idempotency_key == f"{run.id}:0:c1"
    assert await broken_invariants(database_url) == {}


async def test_what_reports_while_the_run_executes_is_read_before_its_end(
    database_url: str,
) -> None:
    probe, gate = Probe(name="quick"), Gate()
    script = in_order(turn(probe.call("c1")), turn("Meanwhile", gate), turn("Now I know."))
    async with replica(database_url, an_agent(probe.tool, background=["quick"]), script) as house:
        run = await house.start()
        await until(run, TaskStatus.COMPLETED)
        gate.open.set()
        said = await run.finished()
        log = await run.log()
        record = await run.now()
    assert len(of_type(said, "run_finish")) == 1, "nothing was left to wait for"
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


async def test_what_reports_between_steps_enters_the_log_at_the_border(database_url: str) -> None:
    probe, other, gate = Probe(name="quick"), Probe(name="other"), Gate()
    script = in_order(turn(probe.call("c1")), turn(gate, other.call("c2")), turn("Both are done."))
    agent = an_agent(probe.tool, other.tool, background=["quick"])
    async with replica(database_url, agent, script) as house:
        run = await house.start()
        await until(run, TaskStatus.COMPLETED)
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


async def test_events_wait_while_a_person_is_asked(database_url: str) -> None:
    probe, risky = Probe(name="slow", held=True), Probe(name="risky")
    script = in_order(turn(probe.call("c1"), risky.call("c2")), turn("All done."))
    agent = an_agent(probe.tool, risky.tool, background=["slow"], approval=["risky"])
    async with replica(database_url, agent, script) as house:
        run = await house.start()
        await run.finished()
        probe.open.set()
        await until(run, TaskStatus.COMPLETED)
        resting = await run.now()
        assert resting.state == Waiting(WaitingReason.TOOL_PERMISSION, "suspended")
        assert resting.unread_inputs == 1
        await run.decide("c2", "approve")
        said = await run.finished(2)
    assert len(script.requests) == 2, "the model was asked twice"
    assert said[-1]["termination"] == {"type": "natural_end"}
    [event] = [m for m in script.requests[1].messages if _EVENT.fullmatch(m.text)]
    assert event.role is Role.USER


async def test_a_background_call_passes_the_gate_like_any_other(database_url: str) -> None:
    probe = Probe(name="slow")
    script = in_order(turn(probe.call("c1")), turn("Waiting."), turn("Done."))
    agent = an_agent(probe.tool, background=["slow"], approval=["slow"])
    async with replica(database_url, agent, script) as house:
        run = await house.start()
        await run.finished()
        assert await tasks_of(run) == []
        await run.decide("perm_c1", "edit", arguments={"text": "less"})
        await run.until("inference_complete", 3)
        [task] = await tasks_of(run)
    assert task.arguments == {"text": "less"}
    assert [one.text for one in probe.handed] == ["less"]


async def test_side_by_side_a_task_begins_when_its_result_is_told(database_url: str) -> None:
    """Its call comes second: until the first one has its result, a crash would begin the task again."""
    first_call, slow = Probe(name="first", held=True, effect="read"), Probe(name="slow")
    agent = an_agent(
        first_call.tool,
        slow.tool,
        background=["slow"],
        tool_execution=ToolExecution.PARALLEL,
    )
    calls = turn(first_call.call("c1"), slow.call("c2"))
    async with replica(database_url, agent, in_order(calls)) as lost:
        run = await lost.start()
        await first_call.was_reached()
        assert await tasks_of(run) == []
        await lost.kill()
    first_call.open.set()
    script = in_order(turn("Waiting."), turn("Done."))
    async with replica(database_url, agent, script) as second:
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


async def test_several_tasks_report_one_after_the_other_each_once(database_url: str) -> None:
    probes = [Probe(name=f"slow{n}", held=True) for n in range(3)]
    calls = turn(*[probe.call(f"c{n}") for n, probe in enumerate(probes)])
    script = in_order(calls, turn("Waiting."), turn("One."), turn("Two."), turn("Three."))
    agent = an_agent(*[p.tool for p in probes], background=[p.name for p in probes])
    async with replica(database_url, agent, script) as house:
        run = await house.start()
        for finishes, probe in enumerate(probes, 1):
            said = await run.finished(finishes)
            assert said[-1]["waiting"]["reason"] == "background_tasks"
            probe.open.set()
        said = await run.finished(4)
        log = await run.log()
    assert said[-1]["termination"] == {"type": "natural_end"}
    told = [found[2] for entry in log if (found := _EVENT.fullmatch(entry.message.text))]
    assert len(set(told)) == 3
    assert len(script.requests) == 5
    assert await broken_invariants(database_url) == {}


async def test_a_tool_that_fails_or_asks_is_a_task_that_failed(database_url: str) -> None:
    @tool
    async def broken() -> str:
        raise RuntimeError("no paper")

    asking = Probe(name="asking", asks=1)
    script = in_order(
        turn(Call(tool="broken", arguments={}), asking.call("c2")), *[turn("I see.")] * 4
    )
    agent = an_agent(broken, asking.tool, background=["broken", "asking"])
    async with replica(database_url, agent, script) as house:
        run = await house.start()

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
    async with replica(
        database_url, agent, in_order(turn(probe.call("c1")), turn("Waiting."))
    ) as first:
        run = await first.start()
        await run.finished()
        await probe.was_reached()
        await first.kill()
    probe.open.set()
    async with replica(database_url, agent, in_order(turn("Done."))) as second:
        run = second.same(run)
        await run.finished(2)
        task = await until(run, TaskStatus.COMPLETED)
    assert (task.attempt, task.losses) == (2, 1)
    assert len(probe.handed) == 2
    assert probe.handed[0] == probe.handed[1]


async def test_an_unsafe_task_is_never_run_again(database_url: str) -> None:
    probe = Probe(name="slow", held=True)
    agent = an_agent(probe.tool, background=["slow"])
    async with replica(
        database_url, agent, in_order(turn(probe.call("c1")), turn("Waiting."))
    ) as first:
        run = await first.start()
        await run.finished()
        await probe.was_reached()
        await first.kill()
    probe.open.set()
    script = in_order(turn("What a pity."))
    async with replica(database_url, agent, script) as second:
        run = second.same(run)
        await run.finished(2)
        task = await until(run, TaskStatus.FAILED)
    assert task.error == OUTCOME_UNKNOWN
    assert len(probe.handed) == 1
    assert OUTCOME_UNKNOWN in script.requests[0].messages[-1].text


async def test_a_task_that_takes_every_worker_along_is_given_up_untouched(
    database_url: str,
) -> None:
    """Not even its tool is asked what has become of it: that may be what kills."""
    asked: list[str] = []

    def became_of(key: str) -> DidNotHappen:
        asked.append(key)
        return DidNotHappen()

    probe = Probe(name="slow", effect="read", held=True, reconcile=became_of)
    agent = an_agent(probe.tool, background=["slow"])
    script = in_order(turn(probe.call("c1")), turn("Waiting."))
    async with replica(database_url, agent, script) as first:
        run = await first.start()
        await run.finished()
        await probe.was_reached()
        await first.database.pool.execute("UPDATE tasks SET losses = 4")
        await first.kill()
    probe.reached.clear()
    async with replica(database_url, agent, script) as second:
        await probe.was_reached()
        assert len(asked) == 1
        await second.kill()
    async with replica(database_url, agent, in_order(turn("A pity."))) as third:
        run = third.same(run)
        await run.finished(2)
        task = await until(run, TaskStatus.FAILED)
    assert task.error == "6 workers were lost over this task"
    assert (len(probe.handed), len(asked)) == (2, 1)


async def suspects(url: str, agent: Catalog, probes: Sequence[Probe]) -> list[Run]:
    """Two tasks, and a run that executes, that have cost as many workers as makes them suspicious."""
    calls = [turn(probe.call("c1")) for probe in probes]
    script = in_order(calls[0], turn("Waiting."), calls[1], turn("Waiting."), calls[2])
    found = []
    async with replica(url, agent, script) as house:
        for probe in probes:
            found.append(await house.start())
            await probe.was_reached()
            if probe is not probes[-1]:
                await found[-1].finished()
            probe.reached.clear()
        await house.database.pool.execute("UPDATE tasks SET losses = 2")
        await house.database.pool.execute("UPDATE runs SET losses = 2 WHERE status = 'running'")
        await house.kill()
    return found


def suspicious_probes() -> list[Probe]:
    return [Probe(name=name, effect="read", held=True) for name in ("one", "other", "third")]


async def test_tasks_and_runs_that_have_cost_several_workers_do_not_share_one(
    database_url: str,
) -> None:
    """Whichever of them kills takes no unlucky one along again; who has cost nobody isn't kept waiting."""
    probes, innocent = suspicious_probes(), Probe(name="innocent")
    tools = [probe.tool for probe in (*probes, innocent)]
    agent = an_agent(*tools, background=["one", "other", "innocent"])
    runs = await suspects(database_url, agent, probes)
    script = in_order(turn(innocent.call("c1")), turn("Waiting."), *(turn("Done.") for _ in "1234"))
    async with replica(database_url, agent, script) as house:

        async def at_work() -> list[Probe]:
            return [probe for probe in probes if probe.reached.is_set()]

        await eventually(at_work)
        beside = await house.start()
        await until(beside, TaskStatus.COMPLETED)
        for number in range(1, len(probes) + 1):

            async def another(number: int = number) -> list[Probe] | None:
                found = await at_work()
                return found if len(found) == number else None

            for probe in await eventually(another):
                probe.open.set()
        for run in runs:
            await house.same(run).ended()
        ended = [task for run in runs for task in await tasks_of(house.same(run))]
    assert [(task.status, task.losses) for task in ended] == [(TaskStatus.COMPLETED, 3)] * 2
    assert [len(probe.handed) for probe in probes] == [2, 2, 2]


async def test_a_suspicious_task_that_kills_nobody_keeps_others_waiting_only_for_a_while(
    database_url: str,
) -> None:
    probes = suspicious_probes()
    agent = an_agent(*(probe.tool for probe in probes), background=["one", "other"])
    runs = await suspects(database_url, agent, probes)
    async with replica(database_url, agent, in_order(*(turn("Done.") for _ in "123"))) as house:
        house.tasks._trusted_after = 0.0
        # The run is trusted by its progress alone.
        probes[-1].open.set()
        for probe in probes:
            await probe.was_reached()
        for probe in probes:
            probe.open.set()
        for run in runs:
            await house.same(run).ended()


@pytest.mark.parametrize("effect", ["idempotent", "unsafe"])
async def test_a_worker_that_stops_hands_over_what_it_may(database_url: str, effect: str) -> None:
    probe = Probe(name="slow", held=True)
    probe.effect = "unsafe" if effect == "unsafe" else "idempotent"
    agent = an_agent(probe.tool, background=["slow"])
    async with replica(
        database_url, agent, in_order(turn(probe.call("c1")), turn("Waiting."))
    ) as first:
        run = await first.start()
        await run.finished()
        await probe.was_reached()
    probe.open.set()
    async with replica(database_url, agent, in_order(turn("Done."))) as second:
        run = second.same(run)
        await run.finished(2)
        [task] = await tasks_of(run)
    assert task.losses == 0
    if effect == "unsafe":
        assert (task.error, len(probe.handed)) == (OUTCOME_UNKNOWN, 1)
    else:
        assert (task.status, len(probe.handed)) == (TaskStatus.COMPLETED, 2)


async def test_a_run_that_is_woken_for_nothing_rests_again_without_asking_the_model(
    database_url: str,
) -> None:
    probe = Probe(name="slow", held=True)
    script = in_order(turn(probe.call("c1")), turn("Waiting."), turn("Done."))
    async with replica(database_url, an_agent(probe.tool, background=["slow"]), script) as house:
        run = await house.start()
        await run.finished()
        record = await run.now()
        key = RunKey(record.tenant, record.thread_id, record.id, record.attempt)
        assert house.worker.reserve()
        assert await house.worker.claim_and_launch(key, None)
        said = await run.finished(2)
        assert len(script.requests) == 2
        assert said[-1]["waiting"]["reason"] == "background_tasks"
        probe.open.set()
        await run.finished(3)
    assert len(script.requests) == 3


# --- cancelling -----------------------------------------------------------------------------------


async def test_cancelling_a_waiting_run_cancels_its_tasks(database_url: str) -> None:
    probe = Probe(name="slow", held=True)
    script = in_order(turn(probe.call("c1")), turn("Waiting."))
    async with replica(database_url, an_agent(probe.tool, background=["slow"]), script) as house:
        run = await house.start()
        await run.finished()
        await probe.was_reached()
        assert (await run.cancel()).is_settled
        [task] = await tasks_of(run)
        assert task.status is TaskStatus.CANCELLED

        async def look() -> bool:
            return not house.tasks.executing

        await eventually(look)
        assert len(await run.log()) == 4, "its end starts nothing"
    assert await broken_invariants(database_url) == {}


async def test_cancelling_an_executing_run_cancels_its_tasks(database_url: str) -> None:
    probe, gate = Probe(name="slow", held=True), Gate()
    script = in_order(turn(probe.call("c1")), turn("Meanwhile", gate))
    async with replica(database_url, an_agent(probe.tool, background=["slow"]), script) as house:
        run = await house.start()
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
    async with replica(database_url, agent, script) as first:
        run = await first.start()
        await run.finished()
        await probe.was_reached()
        await first.kill()
    async with replica(database_url, agent, in_order()) as second:
        run = second.same(run)
        await second.take_nothing_new()
        await run.cancel()
        [task] = await tasks_of(run)
        assert task.status is TaskStatus.CANCELLED
        assert await second.sweeper.run_once() == 0, "nobody looks for it any more"
    assert len(probe.handed) == 1


async def test_what_comes_late_for_a_done_run_is_kept_and_starts_nothing(
    database_url: str,
) -> None:
    probe = Probe(name="slow", held=True)
    script = in_order(turn(probe.call("c1")))
    agent = an_agent(probe.tool, background=["slow"], max_rounds=1)
    async with replica(database_url, agent, script) as house:
        run = await house.start()
        said = await run.finished()
        assert said[-1]["termination"]["type"] == "stopped"
        await probe.was_reached()
        probe.open.set()
        task = await until(run, TaskStatus.COMPLETED)
        record = await run.now()
        events = await run.until("run_finish")
    assert (task.result, task.reported_at) == ("slow did it", None)
    assert (record.status, record.open_tasks) == (RunStatus.DONE, 0)
    assert types_of(events)[-1] == "run_finish"
    assert await broken_invariants(database_url) == {}


async def test_a_task_is_cancelled_by_a_client_and_its_run_is_told(database_url: str) -> None:
    probe = Probe(name="slow", held=True)
    script = in_order(turn(probe.call("c1")), turn("Waiting."), turn("All right."))
    async with replica(database_url, an_agent(probe.tool, background=["slow"]), script) as house:
        run = await house.start()
        await run.finished()
        await probe.was_reached()
        [task] = await tasks_of(run)
        cancelled = await cancel_task(house.ctx, ANN, run.id, task.id)
        again = await cancel_task(house.ctx, ANN, run.id, task.id)
        said = await run.finished(2)
        await _is_foreign(house, run, task)
    assert cancelled == again
    assert cancelled.status is TaskStatus.CANCELLED
    assert said[-1]["termination"] == {"type": "natural_end"}
    assert 'kind="cancelled"' in script.requests[2].messages[-1].text


async def _is_foreign(house: Replica, run: Run, task: Task) -> None:
    stranger = Principal(Tenant("other"), "eve", ANN.scopes)
    with pytest.raises(NotFound):
        await cancel_task(house.ctx, stranger, run.id, task.id)
    with pytest.raises(NotFound):
        await list_tasks(house.ctx, stranger, run.id, before=None, limit=1)
    with pytest.raises(NotFound):
        await cancel_task(house.ctx, ANN, run.id, TaskId("bg_no"))


# --- what the model may do with them --------------------------------------------------------------


def named_task(request: ModelRequest) -> str:
    """The task that the first tool result of the transcript tells of."""
    first = next(message for message in request.messages if message.role is Role.TOOL)
    task_id: str = json.loads(first.text)["task_id"]
    return task_id


async def test_the_model_takes_a_task_back(database_url: str) -> None:
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

    async with replica(database_url, an_agent(probe.tool, background=["slow"]), script) as house:
        run = await house.start()
        said = await run.finished()
        [task] = await tasks_of(run)
        log = await run.log()
    assert task.status is TaskStatus.CANCELLED
    assert task.reported_at is not None
    assert said[-1]["termination"] == {"type": "natural_end"}
    assert json.loads(log[4].message.text) == {"task_id": task.id, "status": "cancelled"}
    assert not any(_EVENT.fullmatch(entry.message.text) for entry in log)
    assert await broken_invariants(database_url) == {}


async def test_a_task_reads_what_the_model_sends_to_it(database_url: str) -> None:
    heard: list[str] = []
    began, sent = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def slow(ctx: ToolContext) -> str:
        began.set()
        await asyncio.wait_for(sent.wait(), 15)
        heard.extend(await ctx.messages())
        heard.extend(await ctx.messages())
        return " and ".join(heard)

    def script(request: ModelRequest) -> ScriptedTurn:
        match sum(message.role is Role.ASSISTANT for message in request.messages):
            case 0:
                return turn(Call(tool="slow", arguments={}))
            case 1 | 2 as batch:
                told = {"task_id": named_task(request), "message": f"number {batch}"}
                return turn(Call(tool="send_message", arguments=told))
            case _:
                return turn("So be it.")

    async with replica(database_url, an_agent(slow, background=["slow"]), script) as house:
        run = await house.start()
        await run.finished()
        log = await run.log()
        await asyncio.wait_for(began.wait(), 15)
        sent.set()
        task = await until(run, TaskStatus.COMPLETED)
    assert json.loads(log[4].message.text)["kept"] is True
    assert task.result == "number 1 and number 2"
    assert task.unread_messages == 0


async def test_what_a_task_never_read_is_told_with_its_end(database_url: str) -> None:
    probe = Probe(name="slow", held=True)

    def script(request: ModelRequest) -> ScriptedTurn:
        match sum(message.role is Role.ASSISTANT for message in request.messages):
            case 0:
                return turn(probe.call("c1"))
            case 1:
                told = {"task_id": named_task(request), "message": "hurry"}
                return turn(Call(tool="send_message", arguments=told))
            case _:
                return turn("So be it.")

    async with replica(database_url, an_agent(probe.tool, background=["slow"]), script) as house:
        run = await house.start()
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

    async with replica(database_url, an_agent(mine.tool, background=["slow"]), script) as house:
        first = await house.start()
        await first.finished()
        [task] = await tasks_of(first)
        theirs = task.id
        second = await house.start()
        await second.finished()
        log = await second.log()
        assert (await until(first, TaskStatus.RUNNING)).id == theirs
    assert "no task" in log[2].message.text


async def test_a_task_shows_what_it_is_at_while_its_run_waits(database_url: str) -> None:
    go_on = asyncio.Event()

    @tool(effect="read")
    async def slow(ctx: ToolContext) -> str:
        await asyncio.wait_for(go_on.wait(), 15)
        ctx.progress(0.1, "begun")
        ctx.progress(0.5, "halfway")
        ctx.stream_output("nobody waits for this")
        ctx.progress(1.0, "there")
        return "done"

    script = in_order(turn(Call(tool="slow", arguments={})), turn("Waiting."), turn("I see."))
    async with replica(database_url, an_agent(slow, background=["slow"]), script) as house:
        run = await house.start()
        await run.finished()
        go_on.set()
        said = await run.finished(2)
        [task] = await tasks_of(run)
    shown = of_type(said, "activity_snapshot")
    assert [one["content"]["message"] for one in shown] == ["there"], "the newest replaces the rest"
    assert shown[0]["message_id"] == task.call_id
    assert "step" not in shown[0]
    assert types_of(said).index("run_finish") < types_of(said).index("activity_snapshot")
    assert types_of(said).index("activity_snapshot") < types_of(said).index("input_queued")


# --- leftovers ------------------------------------------------------------------------------------


async def test_a_task_without_a_delivery_is_found(database_url: str) -> None:
    probe = Probe(name="slow")
    agent = an_agent(probe.tool, background=["slow"])
    script = in_order(turn(probe.call("c1")), turn("Waiting."), turn("Done."))
    async with replica(database_url, agent, script) as house:
        await house.take_nothing_new()
        run = await house.start()
        await run.finished()
        await house.database.pool.execute("DELETE FROM pgq.pgqueuer")
        await house.database.pool.execute("UPDATE tasks SET updated_at = now() - interval '1 min'")
    async with replica(database_url, agent, script) as other:
        run = other.same(run)
        await run.finished(2)


async def test_a_report_without_a_delivery_is_found(database_url: str) -> None:
    probe = Probe(name="slow", held=True)
    agent = an_agent(probe.tool, background=["slow"])
    script = in_order(turn(probe.call("c1")), turn("Waiting."), turn("Done."))
    async with replica(database_url, agent, script) as house:
        run = await house.start()
        await run.finished()
        await probe.was_reached()
        await house.take_nothing_new()
        probe.open.set()
        await until(run, TaskStatus.COMPLETED)
        await house.database.pool.execute("DELETE FROM pgq.pgqueuer")
        await house.database.pool.execute("UPDATE runs SET updated_at = now() - interval '1 min'")
    async with replica(database_url, agent, script) as other:
        run = other.same(run)
        await run.finished(2)
