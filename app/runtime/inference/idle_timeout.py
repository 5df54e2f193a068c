"""How a model that falls silent is noticed: one timer per stream, moved on only when it fires."""

import asyncio
from types import TracebackType
from typing import Self

from app.domain.inference.failures import FailureKind, failed


class IdleTimeout:
    """A block that is broken off as a time-out when nothing is heard in it for `limit` seconds.

    Hearing something only notes the time. Between `pause` and the next `heard`, silence is our own.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._scope = asyncio.timeout(None)
        self._heard_at = 0.0
        self._is_paused = False

    def received(self) -> None:
        self._heard_at = self._loop.time()
        self._is_paused = False

    def pause(self) -> None:
        self._is_paused = True

    async def __aenter__(self) -> Self:
        await self._scope.__aenter__()
        self.received()
        self._timer = self._loop.call_later(self._limit, self._look)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        try:
            await self._scope.__aexit__(kind, error, traceback)
        except TimeoutError:
            raise failed(
                FailureKind.TIMEOUT, f"the model said nothing for {self._limit:g} s"
            ) from None

    def _look(self) -> None:
        now = self._loop.time()
        if self._is_paused:
            self._heard_at = now
        silent_until = self._heard_at + self._limit
        if now >= silent_until:
            self._scope.reschedule(now)
        else:
            self._timer = self._loop.call_at(silent_until, self._look)
