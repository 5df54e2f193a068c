"""Which model is asked after a failed attempt, and after how long a pause.

a short pause   ─► the worker waits, as one of the model's retries
a longer one    ─► the next model is asked; without one the run suspends until a model may be asked
"""

from collections.abc import Sequence

from app.domain.errors import HoldfastError, InferenceFailed
from app.domain.inference.failures import FailureKind, failed
from app.domain.inference.options import RetryPolicy
from app.domain.runs.rate_limits import PauseOrigin, RateLimitPolicy, TimedPause


class PauseNeeded(HoldfastError):
    """Every model needs a pause that is too long for a worker; never leaves the runtime. If the run may
    not wait, it fails with `failure`."""

    def __init__(self, pause: TimedPause, failure: InferenceFailed) -> None:
        super().__init__(pause.sentence)
        self.pause = pause
        self.failure = failure


class Attempts:
    """The models to ask, in their order, each with the same number of retries."""

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
        """The requested pauses that are too long for a worker."""

    @property
    def model(self) -> str:
        """The model to ask next."""
        return self._models[self._at]

    def answer_started(self) -> None:
        """Reset the retries: an answer began. If it is interrupted, the same model is asked again."""
        self._retries = 0
        self._refusal = None
        self._pauses.clear()

    def pause_after(self, failure: InferenceFailed) -> float:
        """Seconds to wait before `model` is asked; this call may have changed it to the next one.

        Raises `PauseNeeded` if only a longer pause helps, and the failure if no retry can help.
        """
        is_breaker_open = failure.kind == FailureKind.MODEL_UNAVAILABLE
        if not (failure.retryable or is_breaker_open):
            raise failure
        if not is_breaker_open:
            self._refusal = failure
        asked_for = failure.retry_after or 0.0
        is_long = asked_for > self._suspend_after
        if is_long:
            self._pauses.append(self._pause(failure, asked_for))
        if not is_breaker_open and not is_long and self._has_retries:
            self._retries += 1
            return max(_backoff(failure, self._retries - 1, self._policy), asked_for)
        if self._go_to_next():
            return 0.0
        if is_breaker_open and asked_for and not is_long and self._has_retries:
            self._retries += 1
            return asked_for
        last = self._refusal or failed(
            FailureKind.ALL_MODELS_UNAVAILABLE,
            f"these models failed too often lately and are paused: {', '.join(self._models)}",
        )
        if self._pauses:
            raise PauseNeeded(min(self._pauses, key=lambda pause: pause.seconds), last)
        raise last

    @property
    def _has_retries(self) -> bool:
        return self._retries < self._policy.max_retries

    def _pause(self, failure: InferenceFailed, seconds: float) -> TimedPause:
        is_breaker_open = failure.kind == FailureKind.MODEL_UNAVAILABLE
        return TimedPause(
            seconds=seconds,
            origin=PauseOrigin.BREAKER if is_breaker_open else PauseOrigin.PROVIDER,
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
