"""Detects a silent model, before and within its answer: one timer per request, which is rescheduled only when it fires."""

import asyncio
from types import TracebackType
from typing import Self

from app.domain.inference.failures import FailureKind, failed


class IdleTimeout:
    """A block that fails with a time-out when `received` isn't called for `limit` seconds.

    `received` only stores the time. Between `pause` and the next `received` no time counts: this process
    is busy then, not the model.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._scope = asyncio.timeout(None)
        self.received()

    def received(self) -> None:
        self._received_at = self._loop.time()
        self._is_paused = False

    def pause(self) -> None:
        self._is_paused = True

    async def __aenter__(self) -> Self:
        await self._scope.__aenter__()
        self.received()
        self._timer = self._loop.call_later(self._limit, self._check)
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

    def _check(self) -> None:
        now = self._loop.time()
        if self._is_paused:
            self._received_at = now
        deadline = self._received_at + self._limit
        if now >= deadline:
            self._scope.reschedule(now)
        else:
            self._timer = self._loop.call_at(deadline, self._check)
