"""Pauses: a request that keeps a run from executing until a resume removes it."""

from datetime import datetime

from msgspec import Struct

PLUGIN_PREFIX = "plugin:"
"""Prefix of `requested_by` if a plugin paused the run; otherwise that is a person's subject."""


class PauseRequest(Struct, frozen=True):
    """The pause request on a run's row. The first request counts until it is removed."""

    requested_at: datetime
    requested_by: str
    reason: str | None = None


class NewPause(Struct, frozen=True):
    """A plugin's pause, which the next checkpoint writes."""

    requested_by: str
    reason: str
