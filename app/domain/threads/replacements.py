"""From where on a start replaces a thread's messages: a run, or a message."""

from typing import TypeAlias

from msgspec import Struct

from app.domain.ids import MessageId, RunId


class FromRun(Struct, frozen=True):
    """The messages that the run was started with, and all later ones."""

    run_id: RunId


class FromMessage(Struct, frozen=True):
    """The message and all later ones. For a message that a run has written: all that the run has written."""

    message_id: MessageId


Replacement: TypeAlias = FromRun | FromMessage
