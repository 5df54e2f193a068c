"""A journal: what one executing run has said and nobody has committed yet."""

import asyncio
from collections.abc import Callable, Sequence

from app.domain.checkpoints import Checkpoint, CheckpointAnswer, PendingEvent
from app.domain.errors import OwnershipLost
from app.domain.events.event_sizes import merge_deltas, size_of
from app.domain.events.run_events import AgentEvent, StepStart
from app.domain.ids import RunId, Tenant, ThreadId
from app.events.unsaved_bytes import BYTES_PER_EVENT, UnsavedBytes, weight


class Journal:
    """A run's voice, and its way to be saved, under one attempt.

    Adjacent deltas are joined while they wait for the next flush; a checkpoint takes along what is left.
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
        self._backlog = UnsavedBytes()
        self._flushed = asyncio.Event()
        self._flushed.set()
        self.lost = asyncio.Event()
        """Set once another worker owns the run: nothing said from now on will be heard."""
        self.held = False
        """A checkpoint is about to take what is pending: don't flush it."""

    def emit(self, event: AgentEvent, step: int | None) -> None:
        self._backlog.refuse_overflow(event)
        pending = self._pending
        self._backlog.add(size_of(event))
        if pending and pending[-1].step == step:
            joined = merge_deltas(pending[-1].event, event)
            if joined is not None:
                pending[-1] = PendingEvent(joined, step)
                return
        self._backlog.add(BYTES_PER_EVENT)
        pending.append(PendingEvent(event, step))
        if self.held:
            return
        if isinstance(event, StepStart):
            self._wake_soon(self)
        else:
            self._wake(self)

    async def wait_for_capacity(self) -> None:
        """A run that talks faster than the database writes waits for it here."""
        await self._backlog.wait_for_capacity()
        if self.lost.is_set():
            raise OwnershipLost(self.run_id)

    async def commit(self, checkpoint: Checkpoint) -> CheckpointAnswer:
        """Save the run together with all that it has said until now.

        Once handed over, a commit is seen through: who is cancelled meanwhile waits for its answer.
        """
        self.held = True
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
            self.held = False
            if self._pending:
                self._wake(self)

    # --- for the writer -----------------------------------------------------------------------

    def take(self) -> list[PendingEvent]:
        taken, self._pending = self._pending, []
        self._backlog.clear()
        return taken

    def put_back(self, taken: Sequence[PendingEvent]) -> None:
        self._pending[:0] = taken
        self._backlog.add(sum(weight(said.event) for said in taken))

    def begin_flush(self) -> None:
        self._flushed.clear()

    def end_flush(self) -> None:
        self._flushed.set()

    def abandon(self) -> None:
        self._pending.clear()
        self.lost.set()
        self._backlog.close()
        self._on_lost()
