"""Compaction during a run: when a summary starts, what the next commit saves, and when it is retried."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest

from app.domain.agents.specs import AgentSpec
from app.domain.errors import InferenceFailed
from app.domain.ids import AgentId, RunId
from app.domain.json_values import JsonObject
from app.domain.runs.runs import Usage
from app.domain.structs import replace
from app.domain.threads.messages import LoggedMessage, Role
from app.domain.tools.tool_calls import ToolDescriptor
from app.runtime.agent import ResolvedAgent
from app.runtime.compaction.compaction import (
    FAILURES,
    FIRST_PAUSE_MESSAGES,
    MAX_DOUBLINGS,
    NO_RESULT,
    Compaction,
)
from app.runtime.history.compaction_plan import CompactionPolicy
from app.runtime.history.summaries import summary_of
from app.runtime.plugins import Plugin, PluginSet
from app.runtime.ports.models import (
    ModelChunk,
    ModelFinished,
    ModelRequest,
    StopReason,
    TextChunk,
    TokenUsage,
)
from app.runtime.ports.tools import Tool
from app.runtime.state import Change, StateView
from tests.support.logs import log_of, message

pytestmark = pytest.mark.anyio

POLICY = CompactionPolicy(threshold=5000, keep_recent_messages=1, max_input_tokens=100_000)
ENDED = ModelFinished(StopReason.END_TURN, TokenUsage(prompt_tokens=30, completion_tokens=4))
RUN = RunId("run")


@pytest.fixture
async def group() -> AsyncIterator[asyncio.TaskGroup]:
    """The task group that runs the summaries."""
    async with asyncio.TaskGroup() as tasks:
        yield tasks


class Summarizer:
    """A model that waits for `may_answer`, and then answers or fails."""

    name = "summarizer"

    def __init__(self, answer: str | Exception = "It is so.") -> None:
        self.was_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self._answer = answer

    @asynccontextmanager
    async def stream(
        self, request: ModelRequest
    ) -> AsyncIterator[AsyncIterator[Sequence[ModelChunk]]]:
        self.was_asked.set()

        async def pieces() -> AsyncIterator[Sequence[ModelChunk]]:
            await self.may_answer.wait()
            if isinstance(self._answer, Exception):
                raise self._answer
            yield [TextChunk(self._answer), ENDED]

        yield pieces()


class CompactionOfRun:
    """A compaction with its agent and the task group for its summaries."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        model: Summarizer | None = None,
        policy: CompactionPolicy | None = POLICY,
    ) -> None:
        self.model = model or Summarizer()
        self.group = group
        self.compaction = Compaction(self._begin)
        self.tasks: list[asyncio.Task[None]] = []
        self.agent = self.with_policy(policy)

    def with_policy(self, policy: CompactionPolicy | None) -> ResolvedAgent:
        return ResolvedAgent(
            spec=AgentSpec(id=AgentId("clerk")),
            model=self.model,
            tools={},
            plugins=PluginSet([Plugin(name="window", compaction=policy)]),
            summarizer=self.model,
        )

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        self.tasks.append(self.group.create_task(work))
        return self.tasks[-1]

    def consider(
        self, log: Sequence[LoggedMessage], failed: JsonObject | None = None
    ) -> "asyncio.Task[None] | None":
        """Whether a summary is running or waits for a commit."""
        before = len(self.tasks)
        state = StateView(values={FAILURES.name: failed})
        self.compaction.consider(RUN, self.agent, log, state)
        return self.tasks[-1] if len(self.tasks) > before else None


def a_log(count: int, size: int = 3984) -> list[LoggedMessage]:
    """Messages of a thousand tokens each."""
    return log_of(*(message(f"u{n}", Role.USER, "x" * size) for n in range(count)))


def is_pending(compacting: CompactionOfRun) -> bool:
    return compacting.compaction.is_pending


def memory_of(changes: tuple[Change, ...]) -> object:
    [change] = changes
    assert change.key is FAILURES
    return change.update


async def test_a_saved_summary_records_its_cost_and_resets_the_failure_count(
    group: asyncio.TaskGroup,
) -> None:
    compacting = CompactionOfRun(group)
    assert compacting.consider(a_log(4)) is None
    task = compacting.consider(a_log(5), {"failures": 2, "not_before_seq": 5})
    assert task is not None
    assert is_pending(compacting)
    assert compacting.compaction.take() is NO_RESULT
    await task
    assert is_pending(compacting)
    outcome = compacting.compaction.take()
    [summary] = outcome.messages
    found = summary_of(summary)
    assert found is not None
    assert (found.text, found.of.from_seq, found.of.to_seq) == ("It is so.", 1, 4)
    assert summary.run_id == RUN
    assert outcome.usage == Usage(30, 4)
    assert memory_of(outcome.changes) is None
    assert not is_pending(compacting)
    assert compacting.compaction.take() is NO_RESULT


async def test_no_summary_begins_without_a_policy_a_model_or_an_owner(
    group: asyncio.TaskGroup,
) -> None:
    assert CompactionOfRun(group, policy=None).consider(a_log(9)) is None
    compacting = CompactionOfRun(group)
    compacting.agent = replace(compacting.agent, summarizer=None)
    assert compacting.consider(a_log(9)) is None
    compacting = CompactionOfRun(group)
    compacting.compaction = Compaction()
    assert compacting.consider(a_log(9)) is None
    assert not is_pending(compacting)


async def test_one_summary_is_made_at_a_time(group: asyncio.TaskGroup) -> None:
    compacting = CompactionOfRun(group)
    compacting.model.may_answer.clear()
    task = compacting.consider(a_log(9))
    assert task is not None
    assert compacting.consider(a_log(9)) is None
    compacting.model.may_answer.set()
    await task
    assert compacting.consider(a_log(9)) is None
    compacting.compaction.take()
    assert compacting.consider(a_log(9)) is not None


@pytest.mark.parametrize("not_before, begins", [(8, True), (9, True), (10, False)])
async def test_after_a_failure_the_log_must_grow_before_the_next_try(
    group: asyncio.TaskGroup, not_before: int, begins: bool
) -> None:
    task = CompactionOfRun(group).consider(a_log(9), {"failures": 1, "not_before_seq": not_before})
    assert (task is not None) is begins


@pytest.mark.parametrize("count", [1, 2, 3, MAX_DOUBLINGS + 1, MAX_DOUBLINGS + 2, 50])
async def test_each_failure_doubles_the_pause_up_to_a_longest(
    group: asyncio.TaskGroup, count: int
) -> None:
    before = None if count == 1 else {"failures": count - 1, "not_before_seq": 0}
    compacting = CompactionOfRun(
        group, Summarizer(InferenceFailed("provider", "no", retryable=True))
    )
    task = compacting.consider(a_log(9), before)
    assert task is not None
    await task
    outcome = compacting.compaction.take()
    pause = FIRST_PAUSE_MESSAGES * 2 ** min(count - 1, MAX_DOUBLINGS)
    assert memory_of(outcome.changes) == {"failures": count, "not_before_seq": 9 + pause}
    assert (outcome.messages, outcome.usage) == ((), Usage())


async def test_an_unusable_summary_costs_tokens_and_counts_as_a_failure(
    group: asyncio.TaskGroup,
) -> None:
    compacting = CompactionOfRun(group, Summarizer(" "))
    task = compacting.consider(a_log(9))
    assert task is not None
    await task
    outcome = compacting.compaction.take()
    assert (outcome.messages, outcome.usage) == ((), Usage(30, 4))
    assert memory_of(outcome.changes) == {"failures": 1, "not_before_seq": 9 + FIRST_PAUSE_MESSAGES}


async def test_a_model_error_does_not_propagate_from_the_summary_task(
    group: asyncio.TaskGroup,
) -> None:
    compacting = CompactionOfRun(group, Summarizer(ValueError("broken")))
    task = compacting.consider(a_log(9))
    assert task is not None
    await task
    assert compacting.compaction.take().messages == ()


async def test_a_summary_whose_commit_failed_is_saved_by_the_next_commit(
    group: asyncio.TaskGroup,
) -> None:
    compacting = CompactionOfRun(group)
    task = compacting.consider(a_log(9))
    assert task is not None
    await task
    outcome = compacting.compaction.take()
    compacting.compaction.put_back(NO_RESULT)
    assert not is_pending(compacting)
    compacting.compaction.put_back(outcome)
    assert is_pending(compacting)
    assert compacting.compaction.take() is outcome


async def test_an_unfinished_summary_counts_as_failed_when_its_run_suspends(
    group: asyncio.TaskGroup,
) -> None:
    compacting = CompactionOfRun(group)
    compacting.model.may_answer.clear()
    task = compacting.consider(a_log(9))
    assert task is not None
    given_up = compacting.compaction.take_before_suspending()
    assert memory_of(given_up.changes) == {
        "failures": 1,
        "not_before_seq": 9 + FIRST_PAUSE_MESSAGES,
    }
    compacting.model.may_answer.set()
    await task
    made = compacting.compaction.take_before_suspending()
    assert len(made.messages) == 1
    compacting.compaction.put_back(given_up)
    assert not is_pending(compacting)


async def test_wait_for_result_waits_for_a_pending_summary(group: asyncio.TaskGroup) -> None:
    compacting = CompactionOfRun(group)
    assert await compacting.compaction.wait_for_result() is NO_RESULT
    compacting.model.may_answer.clear()
    assert compacting.consider(a_log(9)) is not None
    late = group.create_task(compacting.compaction.wait_for_result())
    compacting.model.may_answer.set()
    assert len((await late).messages) == 1


async def test_an_abandoned_summary_is_cancelled(group: asyncio.TaskGroup) -> None:
    compacting = CompactionOfRun(group)
    compacting.compaction.cancel()
    compacting.model.may_answer.clear()
    task = compacting.consider(a_log(9))
    assert task is not None
    await compacting.model.was_asked.wait()
    compacting.compaction.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert not is_pending(compacting)


async def test_messages_are_measured_again_for_another_policy(group: asyncio.TaskGroup) -> None:
    compacting = CompactionOfRun(group)
    log = log_of(*(message(f"t{n}", Role.TOOL, "x" * 40_000, answers=f"c{n}") for n in range(5)))
    trimming = replace(POLICY, threshold=50_000, keep_recent_messages=0)
    compacting.agent = compacting.with_policy(trimming)
    assert compacting.consider(log) is None
    assert compacting.consider(log) is None
    compacting.agent = compacting.with_policy(replace(trimming, trim_results=False))
    compacting.consider(log)
    assert sum(compacting.compaction._sizes) > 50_000


async def test_the_prompt_and_new_messages_count_once(group: asyncio.TaskGroup) -> None:
    compacting = CompactionOfRun(group)
    assert compacting.consider(a_log(3)) is None
    assert compacting.consider(a_log(4)) is None
    spec = replace(compacting.agent.spec, system_prompt="x" * 4000)
    prompted = replace(compacting.agent, spec=spec)
    assert compacting.consider(a_log(4)) is None
    compacting.agent = prompted
    assert compacting.consider(a_log(4)) is not None


async def test_the_tools_of_the_agent_count(group: asyncio.TaskGroup) -> None:
    compacting = CompactionOfRun(group)
    assert compacting.consider(a_log(4)) is None
    large = SimpleNamespace(
        descriptor=ToolDescriptor(name="t", description="x" * 4000, parameters={})
    )
    compacting.agent = replace(compacting.agent, tools={"t": cast(Tool, large)})
    assert compacting.consider(a_log(4)) is not None
