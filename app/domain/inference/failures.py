"""The kinds of model failures, and which of them may be retried."""

from enum import StrEnum

from app.domain.errors import InferenceFailed


class FailureKind(StrEnum):
    """Also the termination code of a run that fails for this reason."""

    PROVIDER = "provider"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    TIMEOUT = "timeout"
    STREAM_INTERRUPTED = "stream_interrupted"
    CONTEXT_OVERFLOW = "context_overflow"
    INVALID_REQUEST = "invalid_request"
    UNAUTHORIZED = "unauthorized"
    """The key is unknown or forbidden, or its account has no credit."""
    MODEL_NOT_FOUND = "model_not_found"
    CONTENT_FILTERED = "content_filtered"
    MODEL_UNAVAILABLE = "model_unavailable"
    """The model's circuit breaker is open, because it failed too often lately."""
    ALL_MODELS_UNAVAILABLE = "all_models_unavailable"

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later."""
        return self in _TEMPORARY

    @property
    def counted(self) -> bool:
        """Whether the circuit breaker counts it. Counted failures are about the model, not about the request."""
        return self in _TEMPORARY


_TEMPORARY = frozenset(
    {
        FailureKind.PROVIDER,
        FailureKind.RATE_LIMITED,
        FailureKind.OVERLOADED,
        FailureKind.TIMEOUT,
        FailureKind.STREAM_INTERRUPTED,
    }
)


def failed(kind: FailureKind, detail: str, *, retry_after: float | None = None) -> InferenceFailed:
    return InferenceFailed(kind.value, detail, retryable=kind.retryable, retry_after=retry_after)
