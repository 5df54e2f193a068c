"""Troubles with an A2A agent: what its library raises, told apart in our words."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from a2a.client.errors import AgentCardResolutionError
from a2a.utils.errors import A2AError, InvalidParamsError, TaskNotFoundError
from google.protobuf.json_format import Error as NoMessage

from app.backends.base import BackendError
from app.backends.retrying import TransientFailure

REMOTE_ERRORS = (A2AError, httpx.HTTPError)
"""What the library raises when the remote, or the way there, doesn't do as it should."""
FINAL_CODES = (TaskNotFoundError, InvalidParamsError)
"""Asking again won't help."""
_NEVER_LEFT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_NOT_TAKEN = (429, 503)
_PASSES = (*_NOT_TAKEN, 502, 504)
_GARBLED = (NoMessage, TypeError, ValueError, KeyError, AttributeError, RecursionError)


def failure_of(error: Exception, *, is_read: bool = False) -> BackendError:
    """What has gone wrong. What only reads may be asked again, whether or not it was heard."""
    chain = list(_chain(error))
    if isinstance(error, FINAL_CODES):
        return BackendError("remote_task_lost", _told("The remote agent has lost its task", error))
    if (status := _status(chain)) is not None:
        passes = status in (_PASSES if is_read else _NOT_TAKEN)
        kind, code = (
            (TransientFailure, "remote_busy") if passes else (BackendError, "remote_refused")
        )
        return kind(code, f"The remote agent refuses: HTTP {status}")
    if any(isinstance(each, httpx.TransportError) for each in chain):
        never_left = any(isinstance(each, _NEVER_LEFT) for each in chain)
        kind = TransientFailure if is_read or never_left else BackendError
        return kind("remote_unreachable", _told("The remote agent can't be reached", chain[-1]))
    if any(isinstance(each, (json.JSONDecodeError, NoMessage)) for each in chain):
        return _garbled(error)
    return BackendError("remote_refused", _told("The remote agent refuses", error))


@contextmanager
def remote_errors_translated() -> Iterator[None]:
    """Whatever can't be read as the protocol's isn't: asking again won't help."""
    try:
        yield
    except _GARBLED as error:
        raise _garbled(error) from error


def _garbled(error: Exception) -> BackendError:
    return BackendError(
        "remote_garbled", _told("The remote doesn't answer as an A2A agent does", error)
    )


def _told(what: str, error: BaseException) -> str:
    why = str(error).partition("\n")[0] or type(error).__name__
    return f"{what}: {why}"[:500]


def _chain(error: BaseException) -> Iterator[BaseException]:
    """What has led to it; its first cause comes last."""
    each: BaseException | None = error
    while each is not None:
        yield each
        each = each.__cause__


def _status(chain: list[BaseException]) -> int | None:
    for each in chain:
        if isinstance(each, httpx.HTTPStatusError):
            return each.response.status_code
        if isinstance(each, AgentCardResolutionError) and each.status_code is not None:
            return each.status_code
    return None
