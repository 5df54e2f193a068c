"""Idempotency: requests with the same key count as one, with one effect and one response."""

from msgspec import Struct


class IdempotencyKey(Struct, frozen=True, kw_only=True):
    """A client's key for one request to one route. The fingerprint shows whether a request is the same."""

    route: str
    key: str
    fingerprint: str


class StoredResponse(Struct, frozen=True):
    """The stored response to the first request."""

    status: int
    body: str
    location: str | None = None
