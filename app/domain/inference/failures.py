"""The ways in which asking a model can fail, and what may be done about each."""

from enum import StrEnum

from app.domain.errors import InferenceFailed


class FailureKind(StrEnum):
    """A run that fails for one of them has it as its termination's code."""

    PROVIDER = "provider"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    TIMEOUT = "timeout"
    STREAM_INTERRUPTED = "stream_interrupted"
    CONTEXT_OVERFLOW = "context_overflow"
    INVALID_REQUEST = "invalid_request"
    UNAUTHORIZED = "unauthorized"
    """The key may not be used: unknown, forbidden, or its account is out of credit."""
    MODEL_NOT_FOUND = "model_not_found"
    CONTENT_FILTERED = "content_filtered"
    MODEL_UNAVAILABLE = "model_unavailable"
    """It failed so often lately that it isn't asked for a while; another model may be."""
    ALL_MODELS_UNAVAILABLE = "all_models_unavailable"

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later without anybody changing anything."""
        return self in _PASSING

    @property
    def counted(self) -> bool:
        """Whether it says something about the model's health, rather than about the request."""
        return self in _PASSING


_PASSING = frozenset(
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
