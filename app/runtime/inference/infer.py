"""One inference: ask the model, say what it streams, and return what it has said.

    infer ─► whole answer ─► mended answer ─► one attempt
             until nothing    until it isn't   opens a stream
             is cut by length broken off       and listens

When nothing fails that is one attempt. Everything else asks again: another attempt while none of the
answer has come, the rest of it once some has.
"""

from dataclasses import dataclass, replace

import structlog

from app import telemetry
from app.clock import sleep, yield_to_loop
from app.domain.errors import InferenceFailed
from app.domain.events.run_events import InferenceComplete
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
"""How often the run has asked for the rest of an answer that its length limit had cut."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A complete answer, without the calls that can't be run.

    `malformed` names those whose arguments weren't JSON, `oversized` those whose arguments were too large,
    `dropped` those that were still on their way when the answer broke off.
    """

    text: str
    calls: tuple[ToolCall, ...]
    malformed: tuple[str, ...]
    oversized: tuple[str, ...]
    dropped: tuple[str, ...]
    stop_reason: StopReason

    @property
    def note(self) -> str | None:
        """What the model must be told of calls that it made in vain."""
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


async def infer(run: ActiveRun, asked: HookRequests = NO_REQUESTS) -> Reply | TimedPause:
    """Stream one answer. When it can't be had whole, what was said of it is left with the run. A pause is
    the answer when no model may be asked before it is over.

    Options are the agent's, overridden by the run's, overridden by what plugins ask for in this step.
    """
    options = run.agent.spec.options.overridden_by(_overrides_of(run))
    for override in asked.all_of(OverrideInference):
        options = options.overridden_by(override.options)
    inference = _Inference(run, request_for(run, asked, options))
    began = run.clock.now()
    try:
        reply = await inference.whole_answer()
    except PauseNeeded as needed:
        if may_wait_again(run, needed.pause):
            keep_partial_answer(run, inference.partial)
            return needed.pause
        _leave_what_was_said(run, inference.answer, needed.failure)
        raise needed.failure from None
    except Exception as error:
        _leave_what_was_said(run, inference.answer, error)
        raise
    keep_partial_answer(run, None)
    note_answer(run)
    seconds = (run.clock.now() - began).total_seconds()
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


def _ends_the_run(run: ActiveRun, wish: InterruptReason) -> bool:
    """Otherwise the step is begun again, here or elsewhere."""
    is_out_of_time = wish is InterruptReason.OUT_OF_TIME
    return wish is InterruptReason.CANCEL or (
        is_out_of_time and run.usage_meter.limits.on_limit is OnLimit.STOP
    )


def _leave_what_was_said(run: ActiveRun, answer: StreamedAnswer, error: Exception) -> None:
    """Keep the text for the message that the end of the run writes; calls on their way are over."""
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
        run.unfinished = Message(
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
        self._broken_off = partial_answer(run)
        self.answer = StreamedAnswer(run, "" if self._broken_off is None else self._broken_off.text)
        self.attempts = Attempts(
            _models(run, request.options, self._policy),
            self._policy,
            run.rate_limits.suspend_after,
        )

    @property
    def partial(self) -> PartialAnswer | None:
        """What an attempt has left of the answer when the next one may not begin yet."""
        if self._broken_off is None:
            return None
        return replace(self._broken_off, text=self.answer.text)

    async def whole_answer(self) -> Reply:
        request = self._request
        if (begun := self._broken_off) is not None:
            request = self._rest(begun.cause, begun.dropped)
        while True:
            dropped = await self._mended_answer(request)
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
            request = self._rest(LENGTH_LIMIT, malformed)

    def _rest(self, cause: str, dropped: tuple[str, ...]) -> ModelRequest:
        """The request for what is missing of the answer."""
        self._broken_off = PartialAnswer(self.answer.text, cause, dropped)
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
        """Take one from what the whole run may spend on answers that were cut."""
        state = self._run.state
        state.register([CONTINUATIONS])
        if state.snapshot.get(CONTINUATIONS) >= self._policy.max_continuation_retries:
            return False
        self._run.change_state(ChangeBatch([Change(CONTINUATIONS, 1)]))
        return True

    async def _mended_answer(self, request: ModelRequest) -> tuple[str, ...] | None:
        """Until an attempt comes to its end: None. One that broke off with calls that had come whole is
        left at that: the names of the others come back."""
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
                broken = failure
            self.attempts.answer_started()
            cause = cause_of(broken)
            plan = plan_for(has_whole_calls=self.answer.has_whole_calls, text=self.answer.text)
            if plan is RecoveryPlan.RUN_CALLS:
                self._count_recovery(plan)
                return self.answer.keep_whole_calls(cause)
            if self._recoveries >= self._policy.max_stream_retries:
                raise failed(FailureKind.STREAM_INTERRUPTED, f"{cause}: {broken.detail}")
            log.info("answer_broke_off", model=self.attempts.model, cause=cause, plan=plan.value)
            self._count_recovery(plan)
            if plan is RecoveryPlan.CONTINUE:
                dropped = self.answer.drop_calls(cause)
                request = self._rest(cause, dropped)
            else:
                self.answer.start_over(cause)
                self._broken_off = None
                request = self._request
            await self._wait(pause_before_recovery(cause, self._recoveries, self._policy))
            self._recoveries += 1

    async def _attempt(self, request: ModelRequest) -> None:
        run, answer, model = self._run, self.answer, self.attempts.model
        if model != run.agent.model.name or request.options.upstream_model is not None:
            request = replace(request, options=replace(request.options, upstream_model=model))
        limit = idle_limit(self._policy, model, request.options)
        async with run.interruption.interruptible(), run.agent.model.stream(request) as stream:
            async with IdleTimeout(limit) as silence:
                async for chunks in stream:
                    silence.pause()
                    is_first = not answer.has_begun
                    for chunk in chunks:
                        answer.add(chunk)
                    if is_first:
                        # The first words are on their way to clients before the end is prepared.
                        await yield_to_loop()
                    await run.events.wait_for_capacity()
                    silence.received()
            if answer.stop_reason is None:
                raise failed(
                    FailureKind.STREAM_INTERRUPTED,
                    "the model's answer ended before it was finished",
                )

    async def _wait_to_retry(self, failure: InferenceFailed) -> None:
        seconds = self.attempts.pause_after(failure)
        log.info("model_asked_again", model=self.attempts.model, after=failure.kind, wait=seconds)
        telemetry.inference_retries.labels(self._run.agent.model.name, failure.kind).inc()
        await self._wait(seconds)

    async def _wait(self, seconds: float) -> None:
        """A wish to cancel breaks it; one to hand over is obeyed here too, for nothing is lost by it."""
        self._run.interruption.check()
        if seconds > 0:
            async with self._run.interruption.interruptible():
                await sleep(seconds)
            self._run.interruption.check()

    def _count_recovery(self, plan: RecoveryPlan) -> None:
        telemetry.stream_recoveries.labels(self._run.agent.model.name, plan.value).inc()


def _models(run: ActiveRun, options: InferenceOptions, policy: RetryPolicy) -> list[str]:
    """The one that was asked for, and those that stand in for it; each once."""
    fallbacks = options.fallback_upstream_models
    if fallbacks is None:
        fallbacks = policy.fallback_upstream_models
    first = options.upstream_model or run.agent.model.name
    return list(dict.fromkeys([first, *fallbacks]))
