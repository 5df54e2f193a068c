"""Converts errors of the A2A library to our own errors."""

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
"""Errors that the library raises if the remote or the network fails."""
FINAL_CODES = (TaskNotFoundError, InvalidParamsError)
"""Errors that a retry doesn't help against."""
_NOT_SENT_ERRORS = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_OVERLOADED_STATUSES = (429, 503)
_TRANSIENT_STATUSES = (*_OVERLOADED_STATUSES, 502, 504)
_PROTOCOL_ERRORS = (NoMessage, TypeError, ValueError, KeyError, AttributeError, RecursionError)


def failure_of(error: Exception, *, is_read: bool = False) -> BackendError:
    """Convert the error. A request that only reads may be retried, even if the remote received it."""
    chain = list(_chain(error))
    if isinstance(error, FINAL_CODES):
        return BackendError(
            "remote_task_lost", _error_text("The remote agent has lost its task", error)
        )
    if (status := _status(chain)) is not None:
        passes = status in (_TRANSIENT_STATUSES if is_read else _OVERLOADED_STATUSES)
        kind, code = (
            (TransientFailure, "remote_busy") if passes else (BackendError, "remote_refused")
        )
        return kind(code, f"The remote agent refuses: HTTP {status}")
    if any(isinstance(each, httpx.TransportError) for each in chain):
        never_left = any(isinstance(each, _NOT_SENT_ERRORS) for each in chain)
        kind = TransientFailure if is_read or never_left else BackendError
        return kind(
            "remote_unreachable", _error_text("The remote agent can't be reached", chain[-1])
        )
    if any(isinstance(each, (json.JSONDecodeError, NoMessage)) for each in chain):
        return _protocol_failure(error)
    return BackendError("remote_refused", _error_text("The remote agent refuses", error))


@contextmanager
def remote_errors_translated() -> Iterator[None]:
    """Convert an answer that breaks the protocol. A retry doesn't help."""
    try:
        yield
    except _PROTOCOL_ERRORS as error:
        raise _protocol_failure(error) from error


def _protocol_failure(error: Exception) -> BackendError:
    return BackendError(
        "remote_garbled", _error_text("The remote doesn't answer as an A2A agent does", error)
    )


def _error_text(what: str, error: BaseException) -> str:
    why = str(error).partition("\n")[0] or type(error).__name__
    return f"{what}: {why}"[:500]


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes; the first cause comes last."""
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
