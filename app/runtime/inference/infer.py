"""One inference: asks the model, emits what it streams, and returns its answer.

    infer ─► complete answer ─► answer with recovery ─► attempt
             continues an       retries, and continues    opens one
             answer cut by      an interrupted answer     stream
             its length limit

Without failures there is one attempt. Otherwise the model is asked again: for the whole answer if none of it
arrived, else for its rest.
"""

from datetime import datetime

import structlog
from msgspec import Struct

from app import telemetry
from app.clock import sleep, yield_to_loop
from app.domain.errors import InferenceFailed
from app.domain.events.step_events import InferenceComplete, InferenceRetry
from app.domain.inference.failures import FailureKind, failed
from app.domain.inference.options import (
    models_in_order,
)
from app.domain.runs.limits import OnLimit
from app.domain.runs.rate_limits import PartialAnswer, TimedPause
from app.domain.structs import replace
from app.domain.threads.citations import Citation
from app.domain.threads.messages import Message, Role, Text, ToolCall, TruncationReason
from app.domain.threads.provider_data import ProviderData
from app.runtime.active_run import ActiveRun
from app.runtime.cancellation import Interrupted, InterruptReason
from app.runtime.inference.idle_timeout import IdleTimeout
from app.runtime.inference.media_files import with_files
from app.runtime.inference.media_refusals import (
    is_media_refusal,
    record_media_refusal,
    without_tool_media,
)
from app.runtime.inference.partial_answers import keep_partial_answer, partial_answer
from app.runtime.inference.provider_data_refusals import (
    is_refusal,
    record_refusal,
    without_provider_data,
)
from app.runtime.inference.rate_limit_waits import may_wait_again, record_answer
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
from app.runtime.inference.structured_output import answer_tool, overrides_of
from app.runtime.phases import NO_REQUESTS, HookRequests
from app.runtime.plugins import OverrideInference
from app.runtime.ports.models import ModelRequest, StopReason
from app.runtime.state import Change, ChangeBatch, StateKey

CONTINUATIONS: StateKey[int, int] = StateKey(
    "__runtime.continuations", lambda: 0, apply=lambda made, more: made + more
)
"""How often the run has continued an answer that was cut by its length limit."""

log = structlog.get_logger(__name__)


class Reply(Struct, frozen=True, kw_only=True):
    """A complete answer, without the calls that can't be run.

    The names of those calls: `malformed` have arguments that aren't JSON, `oversized` have too large ones,
    and `dropped` were incomplete when the stream broke off.
    """

    text: str
    calls: tuple[ToolCall, ...]
    malformed: tuple[str, ...]
    oversized: tuple[str, ...]
    dropped: tuple[str, ...]
    stop_reason: StopReason
    provider_data: ProviderData | None = None
    """What the provider wants back with the answer."""
    citations: tuple[Citation, ...] = ()

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
    options = run.agent.spec.options.overridden_by(overrides_of(run))
    for override in requests.all_of(OverrideInference):
        options = options.overridden_by(override.options)
    request = request_for(run, requests, options)
    # It waits while the store of the files doesn't answer.
    async with run.interruption.interruptible():
        request = await with_files(run.files, request)
    inference = _Inference(run, request)
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
    record_answer(run)
    seconds = (run.clock.now() - started_at).total_seconds()
    telemetry.inference_seconds.labels(run.agent.model.name).observe(seconds)
    run.emit(
        InferenceComplete(
            model=inference.attempts.model,
            duration_ms=round(seconds * 1000),
            usage=usage_json(inference.answer.usage),
            first_token_ms=_milliseconds(started_at, inference.answer.first_chunk_at),
            finish_reason=reply.stop_reason.value,
        )
    )
    return reply


def _milliseconds(begin: datetime, end: datetime | None) -> int | None:
    return None if end is None else max(0, round((end - begin).total_seconds() * 1000))


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
            id=run.answer_id(),
            role=Role.ASSISTANT,
            content=(Text(answer.text, answer.citations),),
            cut_short=reason,
            provider_data=answer.provider_data,
        )
        run.emit(run.message_done(run.unsaved_answer))


class _Inference:
    def __init__(self, run: ActiveRun, request: ModelRequest) -> None:
        self._run = run
        self._request = request
        self._policy = run.agent.spec.retry
        self._recoveries = 0
        self._requests = 1
        self._partial = partial_answer(run)
        self.answer = StreamedAnswer(
            run, "" if self._partial is None else self._partial.text, answer_tool(run)
        )
        self.attempts = Attempts(
            models_in_order(run.agent.model.name, request.options, self._policy),
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
            if answer.is_full or not self._may_continue():
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
            provider_data=self.answer.provider_data,
            citations=self.answer.citations,
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
            self.answer.begin_attempt(self.attempts.model)
            try:
                await self._attempt(request)
                return None
            except InferenceFailed as failure:
                if not self.answer.has_begun:
                    if is_refusal(failure, request):
                        record_refusal(self._run, self.attempts.model)
                        request = without_provider_data(request)
                        self._request = without_provider_data(self._request)
                        await self._wait_before_next(failure, 0.0)
                        continue
                    if is_media_refusal(failure, request):
                        record_media_refusal(self._run, self.attempts.model)
                        request = without_tool_media(request)
                        self._request = without_tool_media(self._request)
                        await self._wait_before_next(failure, 0.0)
                        continue
                    await self._wait_to_retry(failure)
                    continue
                if not failure.retryable:
                    raise
                interruption = failure
            finally:
                self.answer.end_attempt()
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
            log.info(
                "model_answer_interrupted", model=self.attempts.model, cause=cause, plan=plan.value
            )
            self._count_recovery(plan)
            if plan is RecoveryPlan.CONTINUE:
                dropped = self.answer.drop_calls(cause)
                request = self._continuation(cause, dropped)
            else:
                self.answer.start_over(cause)
                self._partial = None
                request = self._request
            seconds = pause_before_recovery(cause, self._recoveries, self._policy)
            await self._wait_before_next(interruption, seconds)
            self._recoveries += 1

    async def _attempt(self, request: ModelRequest) -> None:
        run, answer, model = self._run, self.answer, self.attempts.model
        if model != run.agent.model.name or request.options.upstream_model is not None:
            request = replace(request, options=replace(request.options, upstream_model=model))
        limit = idle_limit(self._policy, model, request.options)
        request = replace(request, idle_timeout=limit)
        async with run.interruption.interruptible(), IdleTimeout(limit) as idle_timeout:
            async with run.agent.model.stream(request) as stream:
                async for chunks in stream:
                    idle_timeout.pause()
                    is_first = not answer.has_begun
                    for chunk in chunks:
                        answer.add(chunk)
                        if answer.is_full:
                            break
                    if is_first:
                        # Clients get the first text before the rest is processed.
                        await yield_to_loop()
                    await run.events.wait_for_capacity()
                    if answer.is_full:
                        break
                    idle_timeout.received()
            if answer.is_full:
                log.warning("model_answer_too_long", model=model, max_bytes=run.max_answer_bytes)
                answer.stop_at_limit()
            if answer.stop_reason is None:
                raise failed(
                    FailureKind.STREAM_INTERRUPTED,
                    "the model's answer ended before it was finished",
                )

    async def _wait_to_retry(self, failure: InferenceFailed) -> None:
        seconds = self.attempts.pause_after(failure)
        log.info("model_retried", model=self.attempts.model, after=failure.kind, wait=seconds)
        telemetry.inference_retries.labels(self._run.agent.model.name, failure.kind).inc()
        await self._wait_before_next(failure, seconds)

    async def _wait_before_next(self, failure: InferenceFailed, seconds: float) -> None:
        """Tell clients that the model is asked again, and wait until then."""
        self._requests += 1
        self._run.emit(InferenceRetry(self._requests, failure.kind, round(seconds * 1000)))
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
