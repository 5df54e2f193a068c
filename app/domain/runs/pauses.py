"""Pauses: a request that keeps a run from executing until a resume removes it."""

from dataclasses import dataclass
from datetime import datetime

PLUGIN_PREFIX = "plugin:"
"""Prefix of `requested_by` if a plugin paused the run; otherwise that is a person's subject."""


@dataclass(frozen=True, slots=True)
class PauseRequest:
    """The pause request on a run's row. The first request counts until it is removed."""

    requested_at: datetime
    requested_by: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class NewPause:
    """A plugin's pause, which the next checkpoint writes."""

    requested_by: str
    reason: str
