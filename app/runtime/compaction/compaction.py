"""Compaction: old messages are summarised beside a run, which neither waits for it nor depends on it.

A summary that is there in time goes into the log with the run's next step, by the run's own commit. What
comes later, fails or takes too long leaves the log as it was, and is tried again once the log has grown.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import structlog

from app import telemetry
from app.clock import new_id
from app.domain.errors import InferenceFailed
from app.domain.ids import MessageId, RunId
from app.domain.json_values import JsonObject
from app.domain.runs.runs import Usage
from app.domain.threads.messages import LoggedMessage, Message
from app.runtime.agent import ResolvedAgent
from app.runtime.compaction.summarize import SummaryReply, summarize
from app.runtime.history import token_estimates
from app.runtime.history.compaction_plan import (
    CompactionPlan,
    CompactionPolicy,
    plan_compaction,
    size_of,
)
from app.runtime.history.summaries import summary_message
from app.runtime.ports import LanguageModel
from app.runtime.state import Change, StateKey, StateScope, StateView

LATE_SUMMARY_TIMEOUT_SECONDS = 180.0
"""Seconds that a summary may take."""
FIRST_PAUSE_MESSAGES = 8
"""Messages that a thread grows by before a summary is tried again; each further failure doubles them."""
MAX_DOUBLINGS = 6

log = structlog.get_logger(__name__)

FAILURES: StateKey[JsonObject | None, JsonObject | None] = StateKey(
    "__context_compaction", lambda: None, scope=StateScope.THREAD
)
"""How often summaries of this thread have failed in a row, and from which message on one may be tried."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What came of a summary, for the next commit: the message if there is one, and what it cost."""

    messages: tuple[Message, ...] = ()
    usage: Usage = Usage()
    changes: tuple[Change, ...] = ()


NO_RESULT = CompactionResult()
Begin: TypeAlias = Callable[[Coroutine[None, None, None]], asyncio.Task[None]]
"""Begins a task, and owns it."""


class Compaction:
    """The summaries of one execution, one at a time; none at all where nobody owns their tasks."""

    def __init__(self, begin: Begin | None = None) -> None:
        self._begin = begin
        self._task: asyncio.Task[None] | None = None
        self._outcome: CompactionResult | None = None
        self._if_given_up = NO_RESULT
        self._sizes: list[int] = []
        self._sized_for: CompactionPolicy | None = None

    def consider(
        self,
        run_id: RunId,
        agent: ResolvedAgent,
        history: Sequence[LoggedMessage],
        state: StateView,
    ) -> None:
        """Begin a summary if the log has grown long and nothing keeps it from being tried."""
        policy, model = agent.plugins.compaction, agent.summarizer
        if policy is None or model is None or self._begin is None:
            return
        if policy != self._sized_for:
            self._sizes, self._sized_for = [], policy
        self._sizes += (size_of(entry.message, policy) for entry in history[len(self._sizes) :])
        failed = state.get(FAILURES)
        is_too_early = failed is not None and history[-1].seq < failed["not_before_seq"]
        if self._task is not None or self._outcome is not None or is_too_early:
            return
        taken = token_estimates.of_text(agent.spec.system_prompt)
        taken += token_estimates.of_tools(tool.descriptor for tool in agent.tools.values())
        planned = plan_compaction(history, self._sizes, policy, taken)
        if planned is not None:
            self._if_given_up = _failure(failed, history[-1].seq)
            self._task = self._begin(self._work(planned, model, policy, run_id))

    @property
    def is_pending(self) -> bool:
        """Something is under way, or ready and not saved."""
        return self._task is not None or self._outcome is not None

    def take(self) -> CompactionResult:
        """What is ready for the commit at hand."""
        outcome, self._outcome = self._outcome, None
        return outcome or NO_RESULT

    def take_before_suspending(self) -> CompactionResult:
        """What is ready when the run comes to rest, where nothing of it may go on.

        One that is under way counts as failed, or each activation of a run that rests often would pay for
        one and give it up.
        """
        return self.take() if self._task is None else self._if_given_up

    def put_back(self, outcome: CompactionResult) -> None:
        """The commit that should have saved it didn't come about."""
        if outcome is not NO_RESULT and outcome is not self._if_given_up:
            self._outcome = outcome

    async def late(self) -> CompactionResult:
        """What the run has left behind, once it is there."""
        if self._task is not None:
            await asyncio.wait({self._task})
        return self.take()

    def give_up(self) -> None:
        """Nobody waits for a summary any more."""
        if self._task is not None:
            self._task.cancel()

    async def _work(
        self,
        planned: CompactionPlan,
        model: LanguageModel,
        policy: CompactionPolicy,
        run_id: RunId,
    ) -> None:
        try:
            answered = await _answer(planned, model, policy.longest_message)
            if answered.text is None:
                self._outcome = replace(self._if_given_up, usage=answered.usage)
            else:
                summary = summary_message(MessageId(new_id()), answered.text, planned.of, run_id)
                self._outcome = CompactionResult(
                    (summary,), answered.usage, (Change(FAILURES, None),)
                )
        finally:
            self._task = None


async def _answer(
    planned: CompactionPlan, model: LanguageModel, longest_message: int
) -> SummaryReply:
    """A summary that can be used, if there is one. Nothing that goes wrong here harms the run."""
    answered = SummaryReply(None, Usage())
    outcome = "failed"
    try:
        async with asyncio.timeout(LATE_SUMMARY_TIMEOUT_SECONDS):
            answered = await summarize(model, planned, longest_message)
        outcome = "unusable" if answered.text is None else "made"
    except TimeoutError:
        log.warning("summary_timed_out", seconds=LATE_SUMMARY_TIMEOUT_SECONDS)
    except InferenceFailed as error:
        log.warning("summary_failed", kind=error.kind, detail=error.detail)
    except Exception:
        log.exception("summary_broken")
    telemetry.summaries.labels(outcome).inc()
    return answered


def _failure(failed: JsonObject | None, at_seq: int) -> CompactionResult:
    failures = 1 + (0 if failed is None else failed["failures"])
    pause = FIRST_PAUSE_MESSAGES * 2 ** min(failures - 1, MAX_DOUBLINGS)
    memory = {"failures": failures, "not_before_seq": at_seq + pause}
    return CompactionResult(changes=(Change(FAILURES, memory),))
