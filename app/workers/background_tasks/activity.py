"""A background task's activity events on the stream of its run, whether that run executes or waits."""

import asyncio

import structlog

from app.clock import sleep
from app.commands.followups.background_tasks import emit_task_activity
from app.domain.events.agent_events import AgentEvent
from app.domain.events.tool_call_events import ActivitySnapshot
from app.events.transaction import EventTransactions
from app.events.unsaved_bytes import UnsavedBytes, weight
from app.storage.children.background_tasks import ClaimedTask
from app.storage.postgres.database import DATABASE_UNAVAILABLE

EMIT_INTERVAL_SECONDS = 0.25
"""Seconds between two commits of one task's activity. A snapshot that is replaced meanwhile is dropped."""

log = structlog.get_logger(__name__)


class TaskEmitter:
    """Keeps the newest activity of each type until it is committed. Ignores a tool's other events: they
    belong to a call, and a background task has none open."""

    def __init__(self, outgoing: EventTransactions, claimed: ClaimedTask) -> None:
        self._outgoing = outgoing
        self._claimed = claimed
        self._newest: dict[str, ActivitySnapshot] = {}
        self._unsaved = UnsavedBytes()
        self._has_pending = asyncio.Event()

    def emit(self, event: AgentEvent) -> None:
        if not isinstance(event, ActivitySnapshot):
            return
        self._unsaved.refuse_overflow(event)
        if (replaced := self._newest.pop(event.activity_type, None)) is not None:
            self._unsaved.take(weight(replaced))
        self._newest[event.activity_type] = event
        self._unsaved.add(weight(event))
        self._has_pending.set()

    async def wait_for_capacity(self) -> None:
        """Wait while too many bytes of activity are unsaved; those of a commit under way count."""
        await self._unsaved.wait_for_capacity()

    async def run(self) -> None:
        """Commit pending activity, until cancelled."""
        while True:
            await self._has_pending.wait()
            await self.emit_pending()
            await sleep(EMIT_INTERVAL_SECONDS)

    async def emit_pending(self) -> None:
        """Commit the newest activity; after an error it is dropped, so that the task can continue."""
        self._has_pending.clear()
        newest, self._newest = self._newest, {}
        if not newest:
            return
        try:
            await emit_task_activity(self._outgoing, self._claimed, list(newest.values()))
        except asyncio.CancelledError:
            # It may have been committed; a snapshot that is emitted twice changes nothing.
            self._newest = {**newest, **self._newest}
            raise
        except DATABASE_UNAVAILABLE as error:
            log.warning("task_activity_dropped", error=repr(error)[:200])
        except Exception:
            log.exception("task_activity_dropped")
        self._unsaved.take(sum(weight(event) for event in newest.values()))
