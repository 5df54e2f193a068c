"""The outage allowance: seconds to add to the heartbeat time-out of other workers after an outage.

In an outage no worker can write a heartbeat, though most of them live. So the length of the last outage is
added to the time-out, until each worker has had time for a new heartbeat.
"""

from collections.abc import Callable


class OutageAllowance:
    def __init__(self, clock: Callable[[], float], *, remembered: float) -> None:
        self._clock = clock
        self._remembered = remembered
        self._succeeded_at = clock()
        self._began_at: float | None = None
        self._ended_at: float | None = None

    def heartbeat_failed(self) -> None:
        """This process could not write a heartbeat."""
        if self._began_at is None:
            self._began_at = self._succeeded_at
        self._ended_at = None

    def heartbeat_succeeded(self) -> None:
        """This process wrote a heartbeat."""
        self._succeeded_at = self._clock()
        if self._began_at is not None and self._ended_at is None:
            self._ended_at = self._succeeded_at

    def seconds(self) -> float:
        """Seconds to add to the heartbeat time-out of other workers."""
        now = self._clock()
        if self._began_at is None:
            return 0.0
        if self._ended_at is None:
            return now - self._began_at
        if now - self._ended_at > self._remembered:
            self._began_at = self._ended_at = None
            return 0.0
        return self._ended_at - self._began_at
