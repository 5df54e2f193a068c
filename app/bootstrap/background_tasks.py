"""What a house has going on beside its requests, and its way to rest."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TypeVar

import structlog

from app.clock import sleep
from app.storage.postgres.database import DATABASE_UNAVAILABLE

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Shutdown:
    """The way to rest: gone once, from when somebody wishes it, or on leaving."""

    def __init__(
        self, go: Callable[[], Coroutine[None, None, None]], beside: "BackgroundTasks"
    ) -> None:
        self._go = go
        self._beside = beside
        self._way: asyncio.Task[Exception | None] | None = None

    def begin(self) -> None:
        if self._way is None:
            self._way = self._beside.finish(self._walk())

    async def finish(self) -> None:
        if self._way is None:
            await self._go()
            return
        await asyncio.wait({self._way})
        if not self._way.cancelled() and (error := self._way.result()) is not None:
            raise error

    async def _walk(self) -> Exception | None:
        try:
            await self._go()
        except Exception as error:  # noqa: BLE001  raised on leaving; the house stands until then
            return error
        return None


class BackgroundTasks:
    """Tasks that live as long as the house; they are cancelled when it is left."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._started: list[asyncio.Task[None]] = []

    @classmethod
    @asynccontextmanager
    async def open(cls) -> "AsyncIterator[BackgroundTasks]":
        async with asyncio.TaskGroup() as tasks:
            background = cls(tasks)
            try:
                yield background
            finally:
                for task in background._started:
                    task.cancel()

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Work without which the house can't stand: when it breaks, all of it stops, loudly."""

        async def watched() -> None:
            try:
                await work
            except Exception:
                log.exception("background_work_broke")
                raise

        self._started.append(self._tasks.create_task(watched()))

    def finish(self, work: Coroutine[None, None, T]) -> "asyncio.Task[T]":
        """Work that is seen through to its end."""
        return self._tasks.create_task(work)

    def every(self, seconds: float, work: Callable[[], Coroutine[None, None, None]]) -> None:
        async def now_and_then() -> None:
            while True:
                await sleep(seconds)
                try:
                    await work()
                except DATABASE_UNAVAILABLE as error:
                    log.debug("skipped", error=repr(error)[:200])

        self.start(now_and_then())
