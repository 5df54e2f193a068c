"""The loop watchdog: a thread that writes heartbeats while the event loop is blocked, up to a limit.

A tool or a hook that blocks the loop stops the heartbeat, and other workers would take over all runs of a
living process. The thread asks the loop for an answer once per interval. Without one, it writes the
heartbeat over its own connection. After `blocked_timeout` it stops, and other workers take the runs over.

A blocked loop reads no cancel requests. After a heartbeat time-out the thread releases the runs that have
one, and another worker ends them.
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

TOLERATED_UNANSWERED = 1
"""Unanswered requests in a row that don't count as blocked: the loop may just be busy."""
MAX_LOGGED_FRAMES = 8
"""Innermost stack frames that a log event shows of a blocked loop."""
STOP_TIMEOUT_SECONDS = 2.0

log = structlog.get_logger(__name__)


class LoopWatchdog:
    """Watches the loop that it is started on."""

    def __init__(
        self,
        database: Database,
        worker_id: WorkerId,
        *,
        interval: float,
        heartbeat_timeout: float,
        blocked_timeout: float,
    ) -> None:
        self._database = database
        self._worker_id = worker_id
        self._interval = interval
        self._limit = blocked_timeout
        self._release_after = min(heartbeat_timeout, blocked_timeout / 2)
        """Always before the limit: after it this thread writes nothing more."""
        self._stopping = threading.Event()
        self._unanswered = 0
        """A count instead of a time: a process that was frozen as a whole must not seem blocked."""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        loop, loop_thread = asyncio.get_running_loop(), threading.get_ident()
        self._thread = threading.Thread(
            target=self._watch, args=(loop, loop_thread), name="loop-watchdog", daemon=True
        )
        self._thread.start()

    async def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, STOP_TIMEOUT_SECONDS)

    def _watch(self, loop: asyncio.AbstractEventLoop, loop_thread: int) -> None:
        while not self._stopping.wait(self._interval):
            if not self._request_answer(loop):
                return
            if self._is_blocked:
                log.warning("event_loop_blocked", at=_stack_of(loop_thread))
                telemetry.loop_blockages.inc()
                asyncio.run(self._heartbeat_while_blocked(loop, loop_thread))

    def _request_answer(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Ask the loop to answer in its next iteration; False when it is closed."""
        self._unanswered += 1
        try:
            loop.call_soon_threadsafe(self._answer)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def _answer(self) -> None:
        self._unanswered = 0

    @property
    def _is_blocked(self) -> bool:
        return self._unanswered > TOLERATED_UNANSWERED and not self._stopping.is_set()

    async def _heartbeat_while_blocked(
        self, loop: asyncio.AbstractEventLoop, loop_thread: int
    ) -> None:
        """Write heartbeats until the loop answers again, at most for the limit."""
        connection: RawConnection | None = None
        is_past_limit = False
        try:
            while self._is_blocked and self._request_answer(loop):
                blocked = self._unanswered * self._interval
                if blocked <= self._limit:
                    connection = await self._heartbeat(
                        connection, and_release=blocked >= self._release_after
                    )
                elif not is_past_limit:
                    is_past_limit = True
                    log.error(
                        "event_loop_blocked_too_long", limit=self._limit, at=_stack_of(loop_thread)
                    )
                await sleep(self._interval)
        finally:
            if connection is not None:
                connection.terminate()
        log.warning("event_loop_unblocked")

    async def _heartbeat(
        self, connection: "RawConnection | None", *, and_release: bool
    ) -> "RawConnection | None":
        """Write one heartbeat; returns the connection for the next one, or None if that needs a new one."""
        try:
            async with asyncio.timeout(max(1.0, self._interval)):
                if connection is None:
                    connection = await self._database.listener()
                await workers.touch(connection, self._worker_id)
                if and_release:
                    await self._release_cancelled(connection)
        except DATABASE_UNAVAILABLE as error:
            log.warning("heartbeat_missed", error=type(error).__name__)
            if connection is not None:
                connection.terminate()
            return None
        return connection

    async def _release_cancelled(self, connection: RawConnection) -> None:
        """Release the runs that have a cancel request. A failure must not stop the heartbeats."""
        try:
            released = await cancel_requests.release(connection, self._worker_id)
        except DATABASE_UNAVAILABLE:
            raise
        except Exception:
            log.exception("cancelled_runs_not_released")
            return
        for key in released:
            log.warning("cancelled_run_released", run_id=key.run_id, attempt=key.attempt)


def _stack_of(thread: int) -> list[str]:
    """A thread's innermost stack frames, outermost first."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001  the one way to see another thread
    stack = traceback.extract_stack(frame)[-MAX_LOGGED_FRAMES:]
    return [f"{one.filename}:{one.lineno} {one.name}" for one in stack]
