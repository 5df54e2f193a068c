"""Which model is asked again when none of an answer came, and after how long a pause."""

from collections.abc import Sequence

from app.domain.errors import InferenceFailed
from app.domain.failures import FailureKind, failed
from app.domain.inference import RetryPolicy

LONGEST_WAIT = 60.0
"""Seconds that a worker waits because a provider asks for it; beyond that another model, or nobody, answers."""


class Attempts:
    """The models that may answer, in their order, each with the same number of retries."""

    def __init__(self, models: Sequence[str], policy: RetryPolicy) -> None:
        self._models = models
        self._policy = policy
        self._at = 0
        self._retries = 0
        self._refusal: InferenceFailed | None = None

    @property
    def model(self) -> str:
        """The one to ask."""
        return self._models[self._at]

    def begun(self) -> None:
        """An answer began. Should it break off, the same model is asked, with all its retries."""
        self._retries = 0
        self._refusal = None

    def pause_after(self, failure: InferenceFailed) -> float:
        """Seconds to wait before `model`, which may be another one by then, is asked; or the failure is
        raised that nothing can be done about."""
        if failure.kind == FailureKind.MODEL_UNAVAILABLE:
            if self._go_to_next():
                return 0.0
            raise self._refusal or failed(
                FailureKind.ALL_MODELS_UNAVAILABLE,
                f"failed too often lately and aren't asked for a while: {', '.join(self._models)}",
            )
        if not failure.retryable:
            raise failure
        self._refusal = failure
        asked_for = failure.retry_after or 0.0
        if self._retries < self._policy.max_retries and asked_for <= LONGEST_WAIT:
            self._retries += 1
            return max(_backoff(failure, self._retries - 1, self._policy), asked_for)
        if self._go_to_next():
            return 0.0
        if asked_for > LONGEST_WAIT:
            raise InferenceFailed(
                failure.kind,
                f"{failure.detail} (the provider asks to wait {asked_for:g} s)",
                retryable=True,
                retry_after=asked_for,
            )
        raise failure

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
