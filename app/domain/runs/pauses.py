"""Pauses: a request that keeps a run from executing until a resume removes it."""

from dataclasses import dataclass
from datetime import datetime

PLUGIN_PREFIX = "plugin:"
"""Before the name of a plugin that has paused a run, where a person's subject stands otherwise."""


@dataclass(frozen=True, slots=True)
class PauseRequest:
    """The pause request on a run's row. The first request counts until it is removed."""

    requested_at: datetime
    requested_by: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class NewPause:
    """A pause that a plugin has asked for; the next checkpoint writes it."""

    requested_by: str
    reason: str
