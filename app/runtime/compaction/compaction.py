"""Compaction: a task summarises old messages while the run executes; the run never waits for it.

A finished summary enters the log with the commit of the run's next step. A failed summary leaves the log
unchanged, and is tried again when the log has grown.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TypeAlias

import structlog
from msgspec import Struct

from app import telemetry
from app.clock import new_id
from app.domain.agents.skills import with_skills
from app.domain.errors import InferenceFailed
from app.domain.ids import MessageId, RunId
from app.domain.json_values import JsonObject
from app.domain.runs.runs import Usage
from app.domain.structs import replace
from app.domain.threads.messages import LoggedMessage, Message
from app.runtime.agent import ResolvedAgent
from app.runtime.compaction.summarize import SummaryReply, SummaryRequest, summarize
from app.runtime.history import token_estimates
from app.runtime.history.compaction_plan import (
    CompactionPlan,
    CompactionPolicy,
    plan_compaction,
    size_of,
)
from app.runtime.history.summaries import summary_message
from app.runtime.ports.models import LanguageModel
from app.runtime.state import Change, StateKey, StateScope, StateView
from app.runtime.tool_search.revealed_tools import known_tools

SUMMARY_TIMEOUT_SECONDS = 180.0
"""The longest time for one summary."""
FIRST_PAUSE_MESSAGES = 8
"""New messages before a failed summary is tried again; each further failure doubles them."""
MAX_DOUBLINGS = 6

log = structlog.get_logger(__name__)

FAILURES: StateKey[JsonObject | None, JsonObject | None] = StateKey(
    "__context_compaction", lambda: None, scope=StateScope.THREAD
)
"""The number of consecutive failures on this thread, and the message that allows the next try."""


class CompactionResult(Struct, frozen=True):
    """The outcome of a summary for the next commit: its message, if there is one, and its usage."""

    messages: tuple[Message, ...] = ()
    usage: Usage = Usage()
    changes: tuple[Change, ...] = ()


NO_RESULT = CompactionResult()
StartTask: TypeAlias = Callable[[Coroutine[None, None, None]], asyncio.Task[None]]
"""Starts a task, and keeps a reference to it."""


class Compaction:
    """The summaries of one execution, one at a time. Without `start_task` there are none."""

    def __init__(self, start_task: StartTask | None = None) -> None:
        self._start_task = start_task
        self._task: asyncio.Task[None] | None = None
        self._outcome: CompactionResult | None = None
        self._if_failed = NO_RESULT
        self._requests: list[SummaryRequest] = []
        self._sizes: list[int] = []
        self._sized_for: CompactionPolicy | None = None

    def consider(
        self,
        run_id: RunId,
        agent: ResolvedAgent,
        history: Sequence[LoggedMessage],
        state: StateView,
    ) -> None:
        """Start a summary if the log is long enough and no earlier failure forbids it."""
        policy, model = agent.plugins.compaction, agent.summarizer
        if policy is None or model is None or self._start_task is None:
            return
        if policy != self._sized_for:
            self._sizes, self._sized_for = [], policy
        self._sizes += (size_of(entry.message, policy) for entry in history[len(self._sizes) :])
        failed = state.get(FAILURES)
        is_too_early = failed is not None and history[-1].seq < failed["not_before_seq"]
        if self._task is not None or self._outcome is not None or is_too_early:
            return
        prompt = with_skills(agent.spec.system_prompt, agent.spec.skills)
        overhead = token_estimates.of_text(prompt)
        tools = (tool.descriptor for tool in agent.tools.values())
        overhead += token_estimates.of_tools(known_tools(tools, agent.tool_search, state))
        plan = plan_compaction(history, self._sizes, policy, overhead)
        if plan is not None:
            self._if_failed = _failure(failed, history[-1].seq)
            self._task = self._start_task(self._work(plan, model, policy, run_id))

    @property
    def is_pending(self) -> bool:
        """Whether a summary is being made, or is ready and not saved."""
        return self._task is not None or self._outcome is not None

    def take(self) -> CompactionResult:
        """Take the outcome that is ready for the current commit."""
        outcome, self._outcome = self._outcome, None
        return outcome or NO_RESULT

    def take_before_suspending(self) -> CompactionResult:
        """Take the outcome when the run suspends. An unfinished summary counts as failed.

        Otherwise a run that suspends often would start and cancel a summary in each activation.
        """
        return self.take() if self._task is None else self._if_failed

    def take_requests(self) -> Sequence[SummaryRequest]:
        """Take the requests for summaries that are not in the usage ledger yet."""
        if not self._requests:
            return ()
        requests, self._requests = self._requests, []
        return requests

    def put_back(self, outcome: CompactionResult) -> None:
        """Put an outcome back, because the commit that should have saved it wrote nothing."""
        if outcome is not NO_RESULT and outcome is not self._if_failed:
            self._outcome = outcome

    async def wait_for_result(self) -> CompactionResult:
        """Wait for the unfinished summary, and take its outcome."""
        if self._task is not None:
            await asyncio.wait({self._task})
        return self.take()

    def cancel(self) -> None:
        """Cancel the unfinished summary."""
        if self._task is not None:
            self._task.cancel()

    async def _work(
        self,
        plan: CompactionPlan,
        model: LanguageModel,
        policy: CompactionPolicy,
        run_id: RunId,
    ) -> None:
        try:
            reply = await _summarize(plan, model, policy.max_message_tokens)
            if reply.request is not None:
                self._requests.append(reply.request)
            if reply.text is None:
                self._outcome = replace(self._if_failed, usage=reply.usage)
            else:
                summary = summary_message(MessageId(new_id()), reply.text, plan.of, run_id)
                self._outcome = CompactionResult((summary,), reply.usage, (Change(FAILURES, None),))
        finally:
            self._task = None


async def _summarize(
    plan: CompactionPlan, model: LanguageModel, max_message_tokens: int
) -> SummaryReply:
    """Ask for a summary; an error is logged, and never fails the run."""
    reply = SummaryReply(None, Usage())
    outcome = "failed"
    try:
        async with asyncio.timeout(SUMMARY_TIMEOUT_SECONDS):
            reply = await summarize(model, plan, max_message_tokens)
        outcome = "unusable" if reply.text is None else "made"
    except TimeoutError:
        log.warning("summary_timed_out", seconds=SUMMARY_TIMEOUT_SECONDS)
    except InferenceFailed as error:
        log.warning("summary_failed", kind=error.kind, detail=error.detail)
    except Exception:
        log.exception("summary_failed")
    telemetry.summaries.labels(outcome).inc()
    return reply


def _failure(failed: JsonObject | None, at_seq: int) -> CompactionResult:
    failures = 1 + (0 if failed is None else failed["failures"])
    pause = FIRST_PAUSE_MESSAGES * 2 ** min(failures - 1, MAX_DOUBLINGS)
    backoff = {"failures": failures, "not_before_seq": at_seq + pause}
    return CompactionResult(changes=(Change(FAILURES, backoff),))
