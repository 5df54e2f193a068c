"""Deafness: how long no heartbeat of anybody could be written, as far as this process has noticed.

While the database is away all workers are silent, and most of them alive. That time doesn't count when it
is asked who has been silent for too long, until everybody has had the chance to be heard again.
"""

from collections.abc import Callable


class OutageAllowance:
    def __init__(self, clock: Callable[[], float], *, remembered: float) -> None:
        self._clock = clock
        self._remembered = remembered
        self._heard_at = clock()
        self._began_at: float | None = None
        self._ended_at: float | None = None

    def heartbeat_failed(self) -> None:
        """A heartbeat of ours couldn't be written."""
        if self._began_at is None:
            self._began_at = self._heard_at
        self._ended_at = None

    def heartbeat_succeeded(self) -> None:
        """A heartbeat of ours was written."""
        self._heard_at = self._clock()
        if self._began_at is not None and self._ended_at is None:
            self._ended_at = self._heard_at

    def seconds(self) -> float:
        """What to add to the patience with others."""
        now = self._clock()
        if self._began_at is None:
            return 0.0
        if self._ended_at is None:
            return now - self._began_at
        if now - self._ended_at > self._remembered:
            self._began_at = self._ended_at = None
            return 0.0
        return self._ended_at - self._began_at
