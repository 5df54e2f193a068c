"""What an executing run knows when it is loaded, and what each save of it writes."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.domain.checkpoints import (
    Checkpoint,
    CheckpointAnswer,
    CheckpointSaved,
    DecidedConcurrently,
    InputOrTasksPending,
)
from app.domain.ids import AgentId, CallId, MessageId
from app.domain.rules.rules import Rule
from app.domain.runs.pauses import PauseRequest
from app.domain.runs.runs import Done, Usage, Waiting, WaitingReason
from app.domain.runs.terminations import NaturalEnd
from app.domain.threads.messages import LoggedMessage, MessageRange, Role, ToolCall
from app.domain.tools.tool_calls import CallState, CallStatus, Effect
from app.llm.scripted.model import turn
from app.runtime.active_run import ActiveRun, restored_state
from app.runtime.agent import placeholder_agent
from app.runtime.compaction.compaction import NO_RESULT, Compaction, CompactionResult
from app.runtime.history.summaries import summary_message
from app.runtime.run_session import EXECUTING, ActivationStart, RunActivity
from tests.conformance.scripted_runs import lifecycle
from tests.support.logs import log_of, message
from tests.support.plain_runs import PlainRun, loaded_run
from tests.support.probes import Probe
from tests.support.records import a_record

pytestmark = pytest.mark.anyio

NOW = datetime(2030, 1, 2, 12, tzinfo=UTC)
WAITING = Waiting(WaitingReason.RATE_LIMIT, "slow down", until=NOW)
SUMMARY = summary_message(MessageId("summary"), "It is so.", MessageRange(1, 1))
COMPACTED = CompactionResult((SUMMARY,), Usage(3, 4))


class SetClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> datetime:
        return self.at


class Store:
    """Keeps the checkpoints, and gives each the same answer."""

    def __init__(self, answer: CheckpointAnswer) -> None:
        self.answer = answer
        self.checkpoints: list[Checkpoint] = []

    async def commit(self, checkpoint: Checkpoint) -> CheckpointAnswer:
        self.checkpoints.append(checkpoint)
        return self.answer


class Rules:
    """Counts how often the remembered rules are read."""

    def __init__(self) -> None:
        self.reads = 0

    async def for_calls_of(self, agent_id: AgentId) -> Sequence[Rule]:
        self.reads += 1
        return ()


class ReadySummary(Compaction):
    """Has a summary for each commit that takes one."""

    def take(self) -> CompactionResult:
        return COMPACTED

    def take_before_suspending(self) -> CompactionResult:
        return COMPACTED


def a_call(id: str, status: CallStatus) -> CallState:
    return CallState(
        call=ToolCall(CallId(id), "probe", {}),
        step_index=0,
        position=0,
        status=status,
        effect=Effect.READ,
        idempotency_key=id,
    )


async def saved(
    answer: CheckpointAnswer | None = None, run: ActiveRun | None = None, **of_save: Any
) -> tuple[ActiveRun, Checkpoint]:
    run = run or await loaded_run()
    store = Store(answer or CheckpointSaved())
    run.store = cast(Any, store)
    await run.save(**of_save)
    [checkpoint] = store.checkpoints
    return run, checkpoint


# --- loading --------------------------------------------------------------------------------------


async def test_a_run_wants_a_pause_if_its_row_or_a_plugin_requests_one() -> None:
    assert not (await loaded_run()).wants_pause
    assert (await loaded_run(record={"pause": PauseRequest(NOW, "ann")})).wants_pause


async def test_calls_without_a_result_are_open() -> None:
    calls = [a_call("c1", CallStatus.SUCCEEDED), a_call("c2", CallStatus.RUNNING)]
    run = await loaded_run(start=ActivationStart(calls=calls))
    assert list(run.open_calls) == ["c2"]


@pytest.mark.parametrize("seconds, active", [(2, 5.0), (0, 3.0), (-2, 3.0)])
async def test_the_time_of_a_run_adds_up_also_if_the_clock_goes_back(
    seconds: float, active: float
) -> None:
    clock = SetClock()
    run = await loaded_run(record={"lost_seconds": 3.0}, clock=clock)
    clock.at += timedelta(seconds=seconds)
    assert run.active_seconds == active


async def test_remembered_rules_are_read_once_for_each_step_and_agent() -> None:
    rules = Rules()
    run = await loaded_run(remembered=rules)
    for steps, reads in [(0, 1), (0, 1), (1, 2), (1, 2), (0, 3)]:
        run.steps = steps
        assert await run.remembered_rules() == ()
        assert rules.reads == reads
    run.agent = placeholder_agent(AgentId("other"))
    await run.remembered_rules()
    assert rules.reads == 4


def test_a_run_without_stored_state_has_revision_0() -> None:
    agent = placeholder_agent(AgentId("clerk"))
    assert restored_state(agent, a_record(), {}).snapshot.revision == 0
    stored = a_record(run_state={"revision": 7, "extensions": {}})
    assert restored_state(agent, stored, {}).snapshot.revision == 7


async def test_a_run_reads_its_inbox_into_its_log() -> None:
    entered = log_of(message("u1", Role.USER, "Hello"), message("u2", Role.USER, "again"), first=5)

    async def enter_log(next_seq: int) -> Sequence[LoggedMessage]:
        assert next_seq == 5
        return entered

    inbox: Any = SimpleNamespace(enter_log=enter_log)
    run = await loaded_run(inbox=inbox, log=[], next_seq=5)
    await run.read_inbox()
    assert (run.log, run.next_seq) == (entered, 7)


# --- saving ---------------------------------------------------------------------------------------


async def test_each_save_has_the_next_revision() -> None:
    run, checkpoint = await saved()
    assert checkpoint.run_state["revision"] == 1
    _, checkpoint = await saved(run=run)
    assert checkpoint.run_state["revision"] == 2


@pytest.mark.parametrize(
    "state, completes_step, is_saved",
    [
        (EXECUTING, True, True),
        (EXECUTING, False, False),
        (WAITING, False, True),
        (WAITING, True, True),
        (Waiting(WaitingReason.TOOL_PERMISSION, "suspended"), False, False),
    ],
)
async def test_a_summary_is_saved_with_a_step_or_with_a_timed_wait(
    state: RunActivity, completes_step: bool, is_saved: bool
) -> None:
    run = await loaded_run(compaction=ReadySummary())
    run.usage = Usage(10, 20)
    run, checkpoint = await saved(run=run, state=state, completes_step=completes_step)
    assert checkpoint.messages == ((SUMMARY,) if is_saved else ())
    assert checkpoint.usage == run.usage == (Usage(13, 24) if is_saved else Usage(10, 20))


@pytest.mark.parametrize(
    "state, is_placeholder, owes",
    [
        (Done(NaturalEnd(), NOW, None), True, True),
        (Done(NaturalEnd(), NOW, None), False, False),
        (EXECUTING, True, False),
        (EXECUTING, False, False),
    ],
)
async def test_only_the_end_of_a_run_without_its_agent_leaves_its_hooks_to_a_follow_up(
    state: RunActivity, is_placeholder: bool, owes: bool
) -> None:
    run = await loaded_run()
    run.agent = placeholder_agent(run.agent.spec.id) if is_placeholder else run.agent
    _, checkpoint = await saved(run=run, state=state)
    assert checkpoint.owes_run_end is owes


@pytest.mark.parametrize(
    "answer, known",
    [
        (CheckpointSaved(2, 3, is_paused=True), (2, 3, True)),
        (InputOrTasksPending(4, 5, is_paused=True), (4, 5, True)),
        (DecidedConcurrently(), (0, 0, False)),
    ],
)
async def test_a_save_returns_inputs_tasks_and_a_pause(
    answer: CheckpointAnswer, known: tuple[int, int, bool]
) -> None:
    run, _ = await saved(answer)
    assert (run.unread_inputs, run.open_tasks, run.is_paused) == known


async def test_each_snapshot_of_a_last_step_shows_the_state_at_its_place() -> None:
    run = PlainRun(turn("Done."))
    await run.start()
    statuses = [lifecycle(event)["status"] for event in run.events("state_snapshot")]
    assert statuses == ["running", "done"]


async def test_a_run_that_answers_at_once_is_saved_once() -> None:
    run = PlainRun(turn("Done."))
    await run.start()
    assert run.rows.record.run_state is not None
    assert run.rows.record.run_state["revision"] == 1


async def test_a_call_is_saved_when_it_begins_and_with_its_step() -> None:
    probe = Probe(effect="read")
    run = PlainRun(turn(probe.call("c1")), turn("Done."), tools=[probe.tool])
    await run.start()
    assert run.rows.record.run_state is not None
    assert run.rows.record.run_state["revision"] == 3


def test_no_result_changes_nothing() -> None:
    assert NO_RESULT == CompactionResult()
