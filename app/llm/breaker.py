"""A circuit breaker: a model that keeps failing gets no requests for a while, then one request tests it.

    Closed ──5 failures in a row──► Open ──30 s──► Probing ──an answer begins──► Closed, on probation
                                      ▲               │                              │
                                      └────failure────┴──────────────failure─────────┘

Pure: every transition gets the time and returns the next state. On probation one more failure opens it
again, and one whole answer ends that.
"""

from datetime import datetime, timedelta
from typing import TypeAlias, assert_never

from msgspec import Struct

FAILURES_TO_OPEN = 5
COOL_DOWN_SECONDS = timedelta(seconds=30)


class Closed(Struct, frozen=True):
    """Requests pass. `failures` counts the failures since the last complete answer."""

    failures: int = 0


class Open(Struct, frozen=True):
    """Requests are refused until `until`."""

    until: datetime


class Probing(Struct, frozen=True):
    """One request tests the model; the others are refused."""


State: TypeAlias = Closed | Open | Probing
HEALTHY = Closed()


def request_allowed(state: State, now: datetime) -> State | None:
    """Return the state after a request has passed, or None if the request is refused."""
    match state:
        case Closed():
            return state
        case Open(until):
            return Probing() if now >= until else None
        case Probing():
            return None
        case _:
            assert_never(state)


def time_until_retry(state: State, now: datetime) -> timedelta:
    """Return the time until another request may pass. While a probe is open, assumes that it fails."""
    match state:
        case Closed():
            return timedelta()
        case Open(until):
            return max(timedelta(), until - now)
        case Probing():
            return COOL_DOWN_SECONDS
        case _:
            assert_never(state)


def answer_started(state: State) -> State:
    return Closed(FAILURES_TO_OPEN - 1) if isinstance(state, Probing) else state


def record_success(state: State) -> State:
    """Record a complete answer. A request that began before the breaker opened doesn't close it."""
    return HEALTHY if isinstance(state, Closed) else state


def record_failure(state: State, now: datetime) -> State:
    match state:
        case Closed(failures):
            is_last_straw = failures + 1 >= FAILURES_TO_OPEN
            return Open(now + COOL_DOWN_SECONDS) if is_last_straw else Closed(failures + 1)
        case Probing():
            return Open(now + COOL_DOWN_SECONDS)
        case Open():
            return state
        case _:
            assert_never(state)


def probe_abandoned(state: State, now: datetime) -> State:
    """The probing request ended without a result. The next request becomes the probe."""
    return Open(now) if isinstance(state, Probing) else state
