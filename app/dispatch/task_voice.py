"""A task's voice: what its tool is at, shown on the stream of its run, whether that executes or waits."""

import asyncio

import structlog

from app.clock import pause
from app.control.tasks import show_activity
from app.domain.events import ActivitySnapshot, AgentEvent
from app.events.backlog import Backlog, weight
from app.events.outgoing import Outgoing
from app.storage.database import DATABASE_AWAY
from app.storage.tasks import ClaimedTask

BREATH = 0.25
"""Seconds between two commits of one task's activity; what was replaced meanwhile is never shown."""

log = structlog.get_logger(__name__)


class TaskVoice:
    """Keeps the newest activity of each kind until it can be shown. Other events of a tool belong to a
    call that somebody waits for, and aren't heard."""

    def __init__(self, outgoing: Outgoing, claimed: ClaimedTask) -> None:
        self._outgoing = outgoing
        self._claimed = claimed
        self._newest: dict[str, ActivitySnapshot] = {}
        self._backlog = Backlog()
        self._said = asyncio.Event()

    def say(self, event: AgentEvent) -> None:
        if not isinstance(event, ActivitySnapshot):
            return
        self._backlog.refuse_overflow(event)
        if (before := self._newest.pop(event.activity_type, None)) is not None:
            self._backlog.take(weight(before))
        self._newest[event.activity_type] = event
        self._backlog.add(weight(event))
        self._said.set()

    async def room(self) -> None:
        """A task that shows more than is saved waits for it here; what is being written counts as well."""
        await self._backlog.room()

    async def run(self) -> None:
        """Show what is said, until cancelled."""
        while True:
            await self._said.wait()
            await self.show()
            await pause(BREATH)

    async def show(self) -> None:
        """What can't be shown is lost: it must not keep the task from going on."""
        self._said.clear()
        newest, self._newest = self._newest, {}
        if not newest:
            return
        try:
            await show_activity(self._outgoing, self._claimed, list(newest.values()))
        except asyncio.CancelledError:
            # Whether it was written nobody knows: shown again it is the same.
            self._newest = {**newest, **self._newest}
            raise
        except DATABASE_AWAY as error:
            log.warning("activity_not_shown", error=repr(error)[:200])
        except Exception:
            log.exception("activity_not_shown")
        self._backlog.take(sum(weight(event) for event in newest.values()))
