"""From where on a start replaces a thread's messages: a run, or a message."""

from dataclasses import dataclass
from typing import TypeAlias

from app.domain.ids import MessageId, RunId


@dataclass(frozen=True, slots=True)
class FromRun:
    """The messages that the run was started with, and all later ones."""

    run_id: RunId


@dataclass(frozen=True, slots=True)
class FromMessage:
    """The message and all later ones. For a message that a run has written: all that the run has written."""

    message_id: MessageId


Replacement: TypeAlias = FromRun | FromMessage
