"""Which model is asked again when none of an answer came, and after how long a pause.

a short pause   ─► the worker sits it out, as one of the model's retries
a longer one    ─► the next model; without one the run is suspended until the first of them may be asked
"""

from collections.abc import Sequence

from app.domain.errors import HoldfastError, InferenceFailed
from app.domain.inference.failures import FailureKind, failed
from app.domain.inference.options import RetryPolicy
from app.domain.runs.rate_limits import AskedBy, RateLimitPolicy, TimedPause


class PauseNeeded(HoldfastError):
    """No model may be asked before a pause that is too long for a worker; never leaves the runtime.
    `failure` is what the run fails with if it may not wait."""

    def __init__(self, pause: TimedPause, failure: InferenceFailed) -> None:
        super().__init__(pause.sentence)
        self.pause = pause
        self.failure = failure


class Attempts:
    """The models that may answer, in their order, each with the same number of retries."""

    def __init__(
        self,
        models: Sequence[str],
        policy: RetryPolicy,
        suspend_after: float = RateLimitPolicy().suspend_after,
    ) -> None:
        self._models = models
        self._policy = policy
        self._suspend_after = suspend_after
        self._at = 0
        self._retries = 0
        self._refusal: InferenceFailed | None = None
        self._pauses: list[TimedPause] = []
        """Those that were asked for and are too long to sit out."""

    @property
    def model(self) -> str:
        """The one to ask."""
        return self._models[self._at]

    def answer_started(self) -> None:
        """An answer began. Should it break off, the same model is asked, with all its retries."""
        self._retries = 0
        self._refusal = None
        self._pauses.clear()

    def pause_after(self, failure: InferenceFailed) -> float:
        """Seconds to wait before `model`, which may be another one by then, is asked.

        Raises `PauseNeeded` when all that is left is a longer pause, and the failure when asking again
        is no use.
        """
        is_shut = failure.kind == FailureKind.MODEL_UNAVAILABLE
        if not (failure.retryable or is_shut):
            raise failure
        if not is_shut:
            self._refusal = failure
        asked_for = failure.retry_after or 0.0
        is_long = asked_for > self._suspend_after
        if is_long:
            self._pauses.append(self._pause(failure, asked_for))
        if not is_shut and not is_long and self._has_retries:
            self._retries += 1
            return max(_backoff(failure, self._retries - 1, self._policy), asked_for)
        if self._go_to_next():
            return 0.0
        if is_shut and asked_for and not is_long and self._has_retries:
            self._retries += 1
            return asked_for
        last = self._refusal or failed(
            FailureKind.ALL_MODELS_UNAVAILABLE,
            f"failed too often lately and aren't asked for a while: {', '.join(self._models)}",
        )
        if self._pauses:
            raise PauseNeeded(min(self._pauses, key=lambda pause: pause.seconds), last)
        raise last

    @property
    def _has_retries(self) -> bool:
        return self._retries < self._policy.max_retries

    def _pause(self, failure: InferenceFailed, seconds: float) -> TimedPause:
        is_shut = failure.kind == FailureKind.MODEL_UNAVAILABLE
        return TimedPause(
            seconds=seconds,
            asked_by=AskedBy.BREAKER if is_shut else AskedBy.PROVIDER,
            source=self.model,
            detail=failure.detail,
        )

    def _go_to_next(self) -> bool:
        if self._at + 1 == len(self._models):
            return False
        self._at += 1
        self._retries = 0
        return True


def _backoff(failure: InferenceFailed, retry: int, policy: RetryPolicy) -> float:
    is_overloaded = failure.kind == FailureKind.OVERLOADED
    base = policy.overloaded_backoff_base if is_overloaded else policy.backoff_base
    return min(base * 2.0**retry, policy.max_backoff)
