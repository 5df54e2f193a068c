"""One inference: asks the model, emits what it streams, and returns its answer.

    infer ─► complete answer ─► answer with recovery ─► attempt
             continues an       retries, and continues    opens one
             answer cut by      an interrupted answer     stream
             its length limit

Without failures there is one attempt. Otherwise the model is asked again: for the whole answer while
nothing of it came, else for its rest.
"""

from dataclasses import dataclass, replace

import structlog

from app import telemetry
from app.clock import sleep, yield_to_loop
from app.domain.errors import InferenceFailed
from app.domain.events.step_events import InferenceComplete
from app.domain.inference.failures import FailureKind, failed
from app.domain.inference.options import (
    NO_OPTIONS,
    InferenceOptions,
    RetryPolicy,
    options_from_json,
)
from app.domain.runs.limits import OnLimit
from app.domain.runs.rate_limits import PartialAnswer, TimedPause
from app.domain.threads.messages import Message, Role, Text, ToolCall, TruncationReason
from app.runtime.active_run import ActiveRun
from app.runtime.cancellation import Interrupted, InterruptReason
from app.runtime.inference.idle_timeout import IdleTimeout
from app.runtime.inference.partial_answers import keep_partial_answer, partial_answer
from app.runtime.inference.rate_limit_waits import may_wait_again, note_answer
from app.runtime.inference.recovery import (
    LENGTH_LIMIT,
    RecoveryPlan,
    cause_of,
    continuation_request,
    idle_limit,
    is_cut_by_length,
    pause_before_recovery,
    plan_for,
)
from app.runtime.inference.request import request_for
from app.runtime.inference.retries import Attempts, PauseNeeded
from app.runtime.inference.streamed_answer import StreamedAnswer, usage_json
from app.runtime.phases import NO_REQUESTS, HookRequests
from app.runtime.plugins import OverrideInference
from app.runtime.ports import ModelRequest, StopReason
from app.runtime.state import Change, ChangeBatch, StateKey

CONTINUATIONS: StateKey[int, int] = StateKey(
    "__runtime.continuations", lambda: 0, apply=lambda made, more: made + more
)
"""How often the run has continued an answer that was cut by its length limit."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A complete answer, without the calls that can't be run.

    `malformed` names calls whose arguments aren't JSON, `oversized` calls whose arguments are too large,
    and `dropped` calls that were incomplete when the stream broke off.
    """

    text: str
    calls: tuple[ToolCall, ...]
    malformed: tuple[str, ...]
    oversized: tuple[str, ...]
    dropped: tuple[str, ...]
    stop_reason: StopReason

    @property
    def note(self) -> str | None:
        """A note for the model about its calls that were not made."""
        notes = []
        if self.malformed:
            notes.append(
                f"The arguments of your call to {', '.join(self.malformed)} were not valid JSON. "
                "Issue it again with valid JSON."
            )
        if self.oversized:
            notes.append(
                f"The arguments of your call to {', '.join(self.oversized)} were too large. "
                "Issue it again with less at a time."
            )
        if self.dropped:
            notes.append(
                f"Your call to {', '.join(self.dropped)} was cut off and not made. "
                "Issue it again if it is still needed."
            )
        return " ".join(notes) or None


async def infer(run: ActiveRun, requests: HookRequests = NO_REQUESTS) -> Reply | TimedPause:
    """Stream one answer, or return the pause after which a model may be asked.

    If the answer fails, the run keeps its text. The run's options override the agent's, and those of
    plugins override both.
    """
    options = run.agent.spec.options.overridden_by(_overrides_of(run))
    for override in requests.all_of(OverrideInference):
        options = options.overridden_by(override.options)
    inference = _Inference(run, request_for(run, requests, options))
    started_at = run.clock.now()
    try:
        reply = await inference.complete_answer()
    except PauseNeeded as needed:
        if may_wait_again(run, needed.pause):
            keep_partial_answer(run, inference.partial)
            return needed.pause
        _keep_partial_text(run, inference.answer, needed.failure)
        raise needed.failure from None
    except Exception as error:
        _keep_partial_text(run, inference.answer, error)
        raise
    keep_partial_answer(run, None)
    note_answer(run)
    seconds = (run.clock.now() - started_at).total_seconds()
    telemetry.inference_seconds.labels(run.agent.model.name).observe(seconds)
    run.emit(
        InferenceComplete(
            model=inference.attempts.model,
            duration_ms=round(seconds * 1000),
            usage=usage_json(inference.answer.usage),
        )
    )
    return reply


def _overrides_of(run: ActiveRun) -> InferenceOptions:
    stored = run.record.request.get("overrides")
    return NO_OPTIONS if stored is None else options_from_json(stored)


def _ends_the_run(run: ActiveRun, reason: InterruptReason) -> bool:
    """Whether the interruption ends the run. Otherwise the step begins again, here or elsewhere."""
    is_out_of_time = reason is InterruptReason.OUT_OF_TIME
    return reason is InterruptReason.CANCEL or (
        is_out_of_time and run.usage_meter.limits.on_limit is OnLimit.STOP
    )


def _keep_partial_text(run: ActiveRun, answer: StreamedAnswer, error: Exception) -> None:
    """Keep the text for the message that the end of the run writes, and drop incomplete calls."""
    reason = TruncationReason.FAILED
    if isinstance(error, Interrupted):
        if not _ends_the_run(run, error.reason):
            return
        reason = (
            TruncationReason.CANCELLED
            if error.reason is InterruptReason.CANCEL
            else TruncationReason.STOPPED
        )
    answer.drop_calls(reason.value)
    keep_partial_answer(run, None)
    if answer.text.strip():
        run.unsaved_answer = Message(
            id=run.new_message_id(),
            role=Role.ASSISTANT,
            content=(Text(answer.text),),
            cut_short=reason,
        )


class _Inference:
    def __init__(self, run: ActiveRun, request: ModelRequest) -> None:
        self._run = run
        self._request = request
        self._policy = run.agent.spec.retry
        self._recoveries = 0
        self._partial = partial_answer(run)
        self.answer = StreamedAnswer(run, "" if self._partial is None else self._partial.text)
        self.attempts = Attempts(
            _models(run, request.options, self._policy),
            self._policy,
            run.rate_limits.suspend_after,
        )

    @property
    def partial(self) -> PartialAnswer | None:
        """The interrupted answer that a later activation continues."""
        if self._partial is None:
            return None
        return replace(self._partial, text=self.answer.text)

    async def complete_answer(self) -> Reply:
        request = self._request
        if (partial := self._partial) is not None:
            request = self._continuation(partial.cause, partial.dropped)
        while True:
            dropped = await self._answer_with_recovery(request)
            answer, stop_reason = self.answer, self.answer.stop_reason
            if dropped is not None:
                return self._reply((), dropped, StopReason.TOOL_USE)
            assert stop_reason is not None
            is_too_long = stop_reason is StopReason.MAX_TOKENS
            malformed = answer.complete(LENGTH_LIMIT if is_too_long else "malformed arguments")
            is_cut = is_cut_by_length(
                stop_reason,
                has_calls=bool(answer.calls),
                text=answer.text,
                cut=bool(malformed),
            )
            if not is_cut:
                return self._reply(malformed, (), stop_reason)
            if not self._may_continue():
                return self._reply((), (), stop_reason)
            telemetry.stream_recoveries.labels(self._run.agent.model.name, "length").inc()
            request = self._continuation(LENGTH_LIMIT, malformed)

    def _continuation(self, cause: str, dropped: tuple[str, ...]) -> ModelRequest:
        """The request for the rest of the answer."""
        self._partial = PartialAnswer(self.answer.text, cause, dropped)
        return continuation_request(self._request, self.answer.text, cause, dropped)

    def _reply(
        self, malformed: tuple[str, ...], dropped: tuple[str, ...], stop_reason: StopReason
    ) -> Reply:
        return Reply(
            text=self.answer.text,
            calls=tuple(self.answer.calls),
            malformed=malformed,
            oversized=tuple(self.answer.oversized),
            dropped=dropped,
            stop_reason=stop_reason,
        )

    def _may_continue(self) -> bool:
        """Count one continuation; False if the run has used all of them."""
        state = self._run.state
        state.register([CONTINUATIONS])
        if state.snapshot.get(CONTINUATIONS) >= self._policy.max_continuation_retries:
            return False
        self._run.change_state(ChangeBatch([Change(CONTINUATIONS, 1)]))
        return True

    async def _answer_with_recovery(self, request: ModelRequest) -> tuple[str, ...] | None:
        """Retry until an attempt completes (returns None), or breaks off after complete tool calls; then
        return the names of the dropped ones."""
        while True:
            self.answer.begin_attempt()
            try:
                await self._attempt(request)
                return None
            except InferenceFailed as failure:
                if not self.answer.has_begun:
                    await self._wait_to_retry(failure)
                    continue
                if not failure.retryable:
                    raise
                interruption = failure
            self.attempts.answer_started()
            cause = cause_of(interruption)
            plan = plan_for(
                has_complete_calls=self.answer.has_complete_calls, text=self.answer.text
            )
            if plan is RecoveryPlan.RUN_CALLS:
                self._count_recovery(plan)
                return self.answer.keep_complete_calls(cause)
            if self._recoveries >= self._policy.max_stream_retries:
                raise failed(FailureKind.STREAM_INTERRUPTED, f"{cause}: {interruption.detail}")
            log.info("answer_interrupted", model=self.attempts.model, cause=cause, plan=plan.value)
            self._count_recovery(plan)
            if plan is RecoveryPlan.CONTINUE:
                dropped = self.answer.drop_calls(cause)
                request = self._continuation(cause, dropped)
            else:
                self.answer.start_over(cause)
                self._partial = None
                request = self._request
            await self._wait(pause_before_recovery(cause, self._recoveries, self._policy))
            self._recoveries += 1

    async def _attempt(self, request: ModelRequest) -> None:
        run, answer, model = self._run, self.answer, self.attempts.model
        if model != run.agent.model.name or request.options.upstream_model is not None:
            request = replace(request, options=replace(request.options, upstream_model=model))
        limit = idle_limit(self._policy, model, request.options)
        async with run.interruption.interruptible(), run.agent.model.stream(request) as stream:
            async with IdleTimeout(limit) as idle_timeout:
                async for chunks in stream:
                    idle_timeout.pause()
                    is_first = not answer.has_begun
                    for chunk in chunks:
                        answer.add(chunk)
                    if is_first:
                        # Clients get the first text before the rest is processed.
                        await yield_to_loop()
                    await run.events.wait_for_capacity()
                    idle_timeout.received()
            if answer.stop_reason is None:
                raise failed(
                    FailureKind.STREAM_INTERRUPTED,
                    "the model's answer ended before it was finished",
                )

    async def _wait_to_retry(self, failure: InferenceFailed) -> None:
        seconds = self.attempts.pause_after(failure)
        log.info("model_retried", model=self.attempts.model, after=failure.kind, wait=seconds)
        telemetry.inference_retries.labels(self._run.agent.model.name, failure.kind).inc()
        await self._wait(seconds)

    async def _wait(self, seconds: float) -> None:
        """Sleep; an interruption ends it at once, and a hand-over before or after it."""
        self._run.interruption.check()
        if seconds > 0:
            async with self._run.interruption.interruptible():
                await sleep(seconds)
            self._run.interruption.check()

    def _count_recovery(self, plan: RecoveryPlan) -> None:
        telemetry.stream_recoveries.labels(self._run.agent.model.name, plan.value).inc()


def _models(run: ActiveRun, options: InferenceOptions, policy: RetryPolicy) -> list[str]:
    """The requested model and its fallbacks, each once."""
    fallbacks = options.fallback_upstream_models
    if fallbacks is None:
        fallbacks = policy.fallback_upstream_models
    first = options.upstream_model or run.agent.model.name
    return list(dict.fromkeys([first, *fallbacks]))
