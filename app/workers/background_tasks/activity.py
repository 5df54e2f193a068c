"""A background task's activity events on the stream of its run, whether that run executes or waits."""

import asyncio
from collections.abc import Iterator, Sequence

import structlog

from app.commands.followups.background_tasks import emit_task_activity
from app.domain.events.agent_events import AgentEvent
from app.domain.events.tool_call_events import ActivityDelta, ActivitySnapshot
from app.events.transaction import EventTransactions
from app.events.unsaved_bytes import UnsavedBytes, weight
from app.storage.children.background_tasks import ClaimedTask
from app.storage.postgres.database import DATABASE_UNAVAILABLE
from app.workers.periodic.loop import wait_for_next

EMIT_INTERVAL_SECONDS = 0.25
"""Seconds between two commits of one task's activity. What a snapshot replaces meanwhile is dropped."""
MAX_EVENTS_PER_COMMIT = 500
"""Events of one commit, which holds the lock of the run."""

log = structlog.get_logger(__name__)

Activity = ActivitySnapshot | ActivityDelta


class TaskEmitter:
    """Keeps, for each type of activity, the newest snapshot and its later changes until they are committed.

    Ignores a tool's other events: they belong to a call, and a background task has none open.
    """

    def __init__(self, outgoing: EventTransactions, claimed: ClaimedTask) -> None:
        self._outgoing = outgoing
        self._claimed = claimed
        self._pending: dict[str, list[Activity]] = {}
        self._unsaved = UnsavedBytes()
        self._has_pending = asyncio.Event()
        self._has_ended = asyncio.Event()

    def emit(self, event: AgentEvent) -> None:
        if not isinstance(event, Activity):
            return
        self._unsaved.refuse_overflow(event)
        if isinstance(event, ActivitySnapshot):
            replaced = self._pending.pop(event.activity_type, [])
            self._unsaved.take(_weight_of(replaced))
        self._pending.setdefault(event.activity_type, []).append(event)
        self._unsaved.add(weight(event))
        self._has_pending.set()

    async def wait_for_capacity(self) -> None:
        """Wait while too many bytes of activity are unsaved; those of a commit under way count."""
        await self._unsaved.wait_for_capacity()

    def end(self) -> None:
        """Let `run` commit the rest and return."""
        self._has_ended.set()
        self._has_pending.set()

    async def run(self) -> None:
        """Commit pending activity until the tool has ended, each event once: a change must not be repeated."""
        while not self._has_ended.is_set():
            await self._has_pending.wait()
            await self._commit_pending()
            await wait_for_next(self._has_ended, EMIT_INTERVAL_SECONDS)
        await self._commit_pending()

    async def _commit_pending(self) -> None:
        self._has_pending.clear()
        pending, self._pending = self._pending, {}
        for events in _commits(pending):
            await self._commit(events)
            self._unsaved.take(_weight_of(events))

    async def _commit(self, events: Sequence[Activity]) -> None:
        """Commit some events; after an error they are dropped, so that the task can continue."""
        try:
            await emit_task_activity(self._outgoing, self._claimed, events)
        except DATABASE_UNAVAILABLE as error:
            log.warning("task_activity_dropped", error=repr(error)[:200])
        except Exception:
            log.exception("task_activity_dropped")


def _commits(pending: dict[str, list[Activity]]) -> Iterator[list[Activity]]:
    events = [event for of_type in pending.values() for event in of_type]
    for start in range(0, len(events), MAX_EVENTS_PER_COMMIT):
        yield events[start : start + MAX_EVENTS_PER_COMMIT]


def _weight_of(events: Sequence[Activity]) -> int:
    return sum(map(weight, events))
