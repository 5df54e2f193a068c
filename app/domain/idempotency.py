"""Idempotency: what a client sends under one key is one request, with one effect and one answer."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyKey:
    """A client's name for one request to one route; the fingerprint tells whether it is the same one."""

    route: str
    key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """An answer as it was given the first time."""

    status: int
    body: str
    location: str | None = None
