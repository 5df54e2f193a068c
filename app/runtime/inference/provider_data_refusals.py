"""Requests that a provider refuses because of the provider data in them: they are sent once more without."""

from collections.abc import Sequence

import structlog

from app import telemetry
from app.domain.errors import InferenceFailed
from app.domain.inference.failures import FailureKind
from app.domain.structs import replace
from app.domain.threads.messages import LoggedMessage
from app.runtime.active_run import ActiveRun
from app.runtime.ports.models import ModelRequest
from app.runtime.state import Change, ChangeBatch, StateKey

_REFUSED_BEFORE: StateKey[int, int] = StateKey(
    "__runtime.provider_data_refused_before", lambda: 0, apply=max
)
"""Messages before this seq are sent without their provider data."""
_SIGNS = ("signature", "thinking", "thought", "reasoning", "encrypted")

log = structlog.get_logger(__name__)


def is_refusal(failure: InferenceFailed, request: ModelRequest) -> bool:
    """Whether the failure may come from provider data in the request."""
    if failure.kind != FailureKind.INVALID_REQUEST:
        return False
    detail = failure.detail.lower()
    return any(sign in detail for sign in _SIGNS) and any(
        message.provider_data is not None for message in request.messages
    )


def record_refusal(run: ActiveRun, model: str) -> None:
    """The run's later requests leave out the provider data of the messages that it has now."""
    log.warning("provider_data_refused", model=model)
    telemetry.provider_data_refused.labels(model).inc()
    run.state.register([_REFUSED_BEFORE])
    run.change_state(ChangeBatch([Change(_REFUSED_BEFORE, run.next_seq)]))


def without_provider_data(request: ModelRequest) -> ModelRequest:
    messages = [
        message if message.provider_data is None else replace(message, provider_data=None)
        for message in request.messages
    ]
    return replace(request, messages=messages)


def accepted_log(run: ActiveRun) -> Sequence[LoggedMessage]:
    """The run's log, without the provider data that a provider has refused."""
    run.state.register([_REFUSED_BEFORE])
    before = run.state.snapshot.get(_REFUSED_BEFORE)
    if not before:
        return run.log
    return [
        replace(entry, message=replace(entry.message, provider_data=None))
        if entry.seq < before and entry.message.provider_data is not None
        else entry
        for entry in run.log
    ]
