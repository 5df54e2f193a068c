"""Threads for tools that are plain functions, so that they can't block the event loop."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class ToolThreads:
    """Runs calls in at most `limit` threads, which are started when needed.

    A thread can't be killed. When the caller stops waiting, a call that still queues never starts; one
    that runs keeps its thread until it returns, and its outcome is dropped. The threads are daemons
    (those of a ThreadPoolExecutor aren't), so a function that hangs doesn't keep the process alive.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._growing = threading.Lock()
        self._started = 0

    async def run(self, call: Callable[[], T]) -> T:
        """Run the call in a thread and return its outcome, with the context variables of the awaiting task."""
        future: Future[T] = Future()
        self._calls.put((future, partial(copy_context().run, call)))
        self._ensure_thread()
        return await asyncio.wrap_future(future)

    def _ensure_thread(self) -> None:
        if self._idle.acquire(blocking=False):
            return
        with self._growing:
            if self._started < self._limit:
                self._started += 1
                name = f"tool-{self._started}"
                threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        while True:
            future, call = self._calls.get()
            if future.set_running_or_notify_cancel():
                _set_outcome(future, call)
            # An idle thread must not keep references to the last call's arguments and result.
            del future, call
            self._idle.release()


def _set_outcome(future: Future[Any], call: Callable[[], Any]) -> None:
    try:
        outcome = call()
    except StopIteration as error:
        # asyncio's futures refuse StopIteration, and the awaiting task would never continue.
        wrapped = RuntimeError("the function raised StopIteration")
        wrapped.__cause__ = error
        future.set_exception(wrapped)
    except BaseException as error:  # noqa: BLE001  it is raised in the awaiting task
        future.set_exception(error)
    else:
        future.set_result(outcome)
