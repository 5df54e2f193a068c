"""Idempotency: requests with the same key count as one, with one effect and one response."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyKey:
    """A client's key for one request to one route. The fingerprint shows whether a request is the same."""

    route: str
    key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """The stored response to the first request."""

    status: int
    body: str
    location: str | None = None
