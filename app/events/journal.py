"""The journal of an executing run: its events that aren't committed yet."""

import asyncio
from collections.abc import Callable, Sequence

from app.domain.checkpoints import Checkpoint, CheckpointAnswer, PendingEvent
from app.domain.errors import OwnershipLost
from app.domain.events.agent_events import AgentEvent
from app.domain.events.event_sizes import merge_deltas, size_of
from app.domain.events.step_events import StepStart
from app.domain.ids import RunId, Tenant, ThreadId
from app.events.unsaved_bytes import BYTES_PER_EVENT, UnsavedBytes, weight


class Journal:
    """Emits the events of one attempt and commits its checkpoints.

    Adjacent deltas are merged until the next flush. A checkpoint commits the pending events with it.
    """

    def __init__(
        self,
        *,
        tenant: Tenant,
        thread_id: ThreadId,
        run_id: RunId,
        attempt: int,
        wake: Callable[["Journal"], None],
        wake_soon: Callable[["Journal"], None],
        save: Callable[["Journal", Checkpoint], "asyncio.Future[CheckpointAnswer]"],
        on_lost: Callable[[], None],
    ) -> None:
        self.tenant = tenant
        self.thread_id = thread_id
        self.run_id = run_id
        self.attempt = attempt
        self._wake = wake
        self._wake_soon = wake_soon
        self._save = save
        self._on_lost = on_lost
        self._pending: list[PendingEvent] = []
        self._unsaved = UnsavedBytes()
        self._flushed = asyncio.Event()
        self._flushed.set()
        self.lost = asyncio.Event()
        """Set once another worker owns the run: later events are dropped."""
        self.flush_blocked = False
        """A checkpoint is about to take the pending events: don't flush them."""

    def emit(self, event: AgentEvent, step: int | None) -> None:
        self._unsaved.refuse_overflow(event)
        pending = self._pending
        self._unsaved.add(size_of(event))
        if pending and pending[-1].step == step:
            joined = merge_deltas(pending[-1].event, event)
            if joined is not None:
                pending[-1] = PendingEvent(joined, step)
                return
        self._unsaved.add(BYTES_PER_EVENT)
        pending.append(PendingEvent(event, step))
        if self.flush_blocked:
            return
        if isinstance(event, StepStart):
            self._wake_soon(self)
        else:
            self._wake(self)

    async def wait_for_capacity(self) -> None:
        """Wait while the run has too many unsaved bytes."""
        await self._unsaved.wait_for_capacity()
        if self.lost.is_set():
            raise OwnershipLost(self.run_id)

    async def commit(self, checkpoint: Checkpoint) -> CheckpointAnswer:
        """Save a checkpoint together with all pending events.

        A save that was enqueued is always completed: a caller that is cancelled waits for its answer.
        """
        self.flush_blocked = True
        try:
            await self._flushed.wait()
            if self.lost.is_set():
                raise OwnershipLost(self.run_id)
            answer = self._save(self, checkpoint)
            try:
                return await asyncio.shield(answer)
            except asyncio.CancelledError:
                await asyncio.wait({answer})
                raise
        finally:
            self.flush_blocked = False
            if self._pending:
                self._wake(self)

    # --- for the group commit -----------------------------------------------------------------

    def take(self) -> list[PendingEvent]:
        taken, self._pending = self._pending, []
        self._unsaved.clear()
        return taken

    def put_back(self, taken: Sequence[PendingEvent]) -> None:
        self._pending[:0] = taken
        self._unsaved.add(sum(weight(pending.event) for pending in taken))

    def begin_flush(self) -> None:
        self._flushed.clear()

    def end_flush(self) -> None:
        self._flushed.set()

    def abandon(self) -> None:
        self._pending.clear()
        self.lost.set()
        self._unsaved.close()
        self._on_lost()
