"""Requests that a provider refuses because of media that tools returned: they are sent once more without."""

from collections.abc import Sequence

import structlog

from app.domain.errors import InferenceFailed
from app.domain.inference.failures import FailureKind
from app.domain.structs import replace
from app.domain.threads.media_placeholders import without_media
from app.domain.threads.messages import LoggedMessage, Media, Message, Role
from app.runtime.active_run import ActiveRun
from app.runtime.ports.models import ModelRequest
from app.runtime.state import Change, ChangeBatch, StateKey

_REFUSED_BEFORE: StateKey[int, int] = StateKey(
    "__runtime.tool_media_refused_before", lambda: 0, apply=max
)
"""Results of calls before this seq are sent without their media."""
_KINDS = (FailureKind.INVALID_REQUEST, FailureKind.MODEL_NOT_FOUND)
"""Routers answer 404 if none of a model's servers can read the media."""
_SIGNS = ("image", "audio", "video", "document", "pdf", "file", "media", "modal", "content type")

log = structlog.get_logger(__name__)


def is_media_refusal(failure: InferenceFailed, request: ModelRequest) -> bool:
    """Whether the failure may come from media that tools returned."""
    if failure.kind not in _KINDS or not any(map(_has_tool_media, request.messages)):
        return False
    detail = failure.detail.lower()
    return any(sign in detail for sign in _SIGNS)


def record_media_refusal(run: ActiveRun, model: str) -> None:
    """The run's later requests have placeholders for the media of the results that it has now."""
    log.warning("tool_media_refused", model=model)
    run.state.register([_REFUSED_BEFORE])
    run.change_state(ChangeBatch([Change(_REFUSED_BEFORE, run.next_seq)]))


def without_tool_media(request: ModelRequest) -> ModelRequest:
    return replace(request, messages=[_without_tool_media(each) for each in request.messages])


def without_refused_media(run: ActiveRun, log: Sequence[LoggedMessage]) -> Sequence[LoggedMessage]:
    """The log with placeholders for the media of tools that a provider has refused."""
    run.state.register([_REFUSED_BEFORE])
    before = run.state.snapshot.get(_REFUSED_BEFORE)
    if not before:
        return log
    return [
        replace(entry, message=_without_tool_media(entry.message))
        if entry.seq < before and _has_tool_media(entry.message)
        else entry
        for entry in log
    ]


def _has_tool_media(message: Message) -> bool:
    return message.role is Role.TOOL and any(isinstance(each, Media) for each in message.content)


def _without_tool_media(message: Message) -> Message:
    return without_media([message])[0] if message.role is Role.TOOL else message
