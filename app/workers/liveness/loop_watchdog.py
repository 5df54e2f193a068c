"""The pulse: proves a process alive while its event loop is blocked, and not for ever.

A tool or a hook that blocks the loop silences the heartbeat, and would cost the process all of its runs
though it lives. A thread asks the loop to answer, once per interval. While there is no answer it beats in
the loop's place, over a connection of its own; a loop that is blocked for longer than its limit is as good
as dead, and its runs are for others.

A blocked loop reads no cancel requests. Once it is blocked for a heartbeat time-out, the thread gives up the
runs that have one, and another worker ends them.
"""

import asyncio
import sys
import threading
import traceback

import structlog

from app import telemetry
from app.clock import sleep
from app.domain.ids import WorkerId
from app.storage import workers
from app.storage.postgres.connect import RawConnection
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Database
from app.storage.queue import cancel_requests

THREADS = 1
"""A question in a row that may stay without an answer: the loop may just be busy."""
MAX_LOGGED_FRAMES = 8
"""Of the place where it is blocked, the innermost."""
STOP_TIMEOUT_SECONDS = 2.0

log = structlog.get_logger(__name__)


class LoopWatchdog:
    """Watches the loop that it is started on."""

    def __init__(
        self,
        database: Database,
        me: WorkerId,
        *,
        interval: float,
        heartbeat_timeout: float,
        blocked_timeout: float,
    ) -> None:
        self._database = database
        self._me = me
        self._interval = interval
        self._limit = blocked_timeout
        self._release_after = min(heartbeat_timeout, blocked_timeout / 2)
        """Before the limit in any case: behind it this thread writes nothing more."""
        self._stopping = threading.Event()
        self._unanswered = 0
        """Counted instead of timed: a process that was frozen as a whole hasn't been blocked."""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        loop, home = asyncio.get_running_loop(), threading.get_ident()
        self._thread = threading.Thread(
            target=self._watch, args=(loop, home), name="pulse", daemon=True
        )
        self._thread.start()

    async def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, STOP_TIMEOUT_SECONDS)

    def _watch(self, loop: asyncio.AbstractEventLoop, home: int) -> None:
        while not self._stopping.wait(self._interval):
            if not self._ask(loop):
                return
            if self._is_blocked:
                log.warning("event_loop_blocked", at=_place(home))
                telemetry.loop_blockages.inc()
                asyncio.run(self._heartbeat_while_blocked(loop, home))

    def _ask(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Have the loop answer once it takes a turn; False when it never will again."""
        self._unanswered += 1
        try:
            loop.call_soon_threadsafe(self._answer)
        except RuntimeError:  # it is closed
            return False
        return True

    def _answer(self) -> None:
        self._unanswered = 0

    @property
    def _is_blocked(self) -> bool:
        return self._unanswered > THREADS and not self._stopping.is_set()

    async def _heartbeat_while_blocked(self, loop: asyncio.AbstractEventLoop, home: int) -> None:
        """Beat until the loop is back, within its limit."""
        connection: RawConnection | None = None
        is_given_up = False
        try:
            while self._is_blocked and self._ask(loop):
                blocked = self._unanswered * self._interval
                if blocked <= self._limit:
                    connection = await self._beat(
                        connection, and_release=blocked >= self._release_after
                    )
                elif not is_given_up:
                    is_given_up = True
                    log.error("event_loop_given_up", limit=self._limit, at=_place(home))
                await sleep(self._interval)
        finally:
            if connection is not None:
                connection.terminate()
        log.warning("event_loop_back")

    async def _beat(
        self, connection: "RawConnection | None", *, and_release: bool
    ) -> "RawConnection | None":
        """The connection to beat over next time; None when that needs a new one."""
        try:
            async with asyncio.timeout(max(1.0, self._interval)):
                if connection is None:
                    connection = await self._database.listener()
                await workers.touch(connection, self._me)
                if and_release:
                    await self._release_cancelled(connection)
        except DATABASE_UNAVAILABLE as error:
            log.warning("heartbeat_missed", error=type(error).__name__)
            if connection is not None:
                connection.terminate()
            return None
        return connection

    async def _release_cancelled(self, connection: RawConnection) -> None:
        """Give up the runs that have a cancel request. A failure of that must not stop the heartbeats."""
        try:
            released = await cancel_requests.release(connection, self._me)
        except DATABASE_UNAVAILABLE:
            raise
        except Exception:
            log.exception("cancelled_runs_not_released")
            return
        for key in released:
            log.warning("cancelled_run_released", run_id=key.run_id, attempt=key.attempt)


def _place(thread: int) -> list[str]:
    """Where a thread stands, outermost first."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001  the one way to see another thread
    stack = traceback.extract_stack(frame)[-MAX_LOGGED_FRAMES:]
    return [f"{one.filename}:{one.lineno} {one.name}" for one in stack]
