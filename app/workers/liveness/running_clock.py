"""A clock that stops while this process is frozen or its event loop is blocked."""

from collections.abc import Callable

from app.clock import sleep

MAX_TICK_INTERVALS = 2.0
"""A tick may come this many intervals after the last one. Time beyond that is not counted."""


class RunningClock:
    """Counts the seconds in which the event loop has run.

    A frozen process misses its heartbeats and can't see those of others. Measured by this clock, that
    time is no outage of the database.
    """

    def __init__(self, clock: Callable[[], float], *, interval: float) -> None:
        self._clock = clock
        self._interval = interval
        self._counted = 0.0
        self._ticked_at = clock()

    def seconds(self) -> float:
        since_tick = self._clock() - self._ticked_at
        return self._counted + min(since_tick, MAX_TICK_INTERVALS * self._interval)

    def tick(self) -> None:
        self._counted = self.seconds()
        self._ticked_at = self._clock()

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            await sleep(self._interval)
            self.tick()
