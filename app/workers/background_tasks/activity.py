"""A task's voice: what its tool is at, shown on the stream of its run, whether that executes or waits."""

import asyncio

import structlog

from app.clock import sleep
from app.commands.followups.background_tasks import emit_task_activity
from app.domain.events.run_events import ActivitySnapshot, AgentEvent
from app.events.transaction import EventTransactions
from app.events.unsaved_bytes import UnsavedBytes, weight
from app.storage.children.background_tasks import ClaimedTask
from app.storage.postgres.database import DATABASE_UNAVAILABLE

EMIT_INTERVAL_SECONDS = 0.25
"""Seconds between two commits of one task's activity; what was replaced meanwhile is never shown."""

log = structlog.get_logger(__name__)


class TaskEmitter:
    """Keeps the newest activity of each kind until it can be shown. Other events of a tool belong to a
    call that somebody waits for, and aren't heard."""

    def __init__(self, outgoing: EventTransactions, claimed: ClaimedTask) -> None:
        self._outgoing = outgoing
        self._claimed = claimed
        self._newest: dict[str, ActivitySnapshot] = {}
        self._backlog = UnsavedBytes()
        self._said = asyncio.Event()

    def emit(self, event: AgentEvent) -> None:
        if not isinstance(event, ActivitySnapshot):
            return
        self._backlog.refuse_overflow(event)
        if (before := self._newest.pop(event.activity_type, None)) is not None:
            self._backlog.take(weight(before))
        self._newest[event.activity_type] = event
        self._backlog.add(weight(event))
        self._said.set()

    async def wait_for_capacity(self) -> None:
        """A task that shows more than is saved waits for it here; what is being written counts as well."""
        await self._backlog.wait_for_capacity()

    async def run(self) -> None:
        """Show what is said, until cancelled."""
        while True:
            await self._said.wait()
            await self.emit_pending()
            await sleep(EMIT_INTERVAL_SECONDS)

    async def emit_pending(self) -> None:
        """What can't be shown is lost: it must not keep the task from going on."""
        self._said.clear()
        newest, self._newest = self._newest, {}
        if not newest:
            return
        try:
            await emit_task_activity(self._outgoing, self._claimed, list(newest.values()))
        except asyncio.CancelledError:
            # Whether it was written nobody knows: shown again it is the same.
            self._newest = {**newest, **self._newest}
            raise
        except DATABASE_UNAVAILABLE as error:
            log.warning("activity_not_shown", error=repr(error)[:200])
        except Exception:
            log.exception("activity_not_shown")
        self._backlog.take(sum(weight(event) for event in newest.values()))
