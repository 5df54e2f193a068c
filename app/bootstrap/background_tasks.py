"""The asyncio tasks that live as long as the process."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TypeVar

import structlog

from app.clock import sleep
from app.storage.postgres.database import DATABASE_UNAVAILABLE

T = TypeVar("T")

log = structlog.get_logger(__name__)


class BackgroundTasks:
    """Tasks that are cancelled when the application closes."""

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
        """Start work that the process needs: an error in it is logged and ends the process."""
        self._started.append(self._tasks.create_task(_watched(work)))

    def finish(self, work: Coroutine[None, None, T]) -> "asyncio.Task[T]":
        """Start work that isn't cancelled: closing waits for its end."""
        return self._tasks.create_task(work)

    def every(self, seconds: float, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Do `work` once per interval; an outage skips a turn."""
        self.start(_repeat(seconds, work))


async def _watched(work: Coroutine[None, None, None]) -> None:
    try:
        await work
    except Exception:
        log.exception("background_work_failed")
        raise


async def _repeat(seconds: float, work: Callable[[], Coroutine[None, None, None]]) -> None:
    while True:
        await sleep(seconds)
        try:
            await work()
        except DATABASE_UNAVAILABLE as error:
            log.debug("background_work_skipped", error=repr(error)[:200])
