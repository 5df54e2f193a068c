"""A journal: what one executing run has said and nobody has committed yet."""

import asyncio
from collections.abc import Callable, Sequence

from app.domain.checkpoints import Checkpoint, CheckpointAnswer, Said
from app.domain.errors import OutputOverflow, OwnershipLost
from app.domain.event_sizes import merged, size_of
from app.domain.events import TOOL_OUTPUT, AgentEvent, StepStart
from app.domain.ids import RunId, Tenant, ThreadId

MOST_WAITING = 1_000_000
"""Bytes that may wait for a commit before the run has to wait too."""
MOST_OF_TOOLS = 8 * MOST_WAITING
"""Bytes that may wait when a tool shows more: it has had the chance to wait, and didn't take it."""
PER_EVENT = 200
"""Bytes that an event counts for, whatever is in it."""


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
        self._pending: list[Said] = []
        self._waiting = 0
        self._drained = asyncio.Event()
        self._flushed = asyncio.Event()
        self._flushed.set()
        self.lost = asyncio.Event()
        """Set once another worker owns the run: nothing said from now on will be heard."""
        self.held = False
        """A checkpoint is about to take what is pending: don't flush it."""

    def say(self, event: AgentEvent, step: int | None) -> None:
        if self._waiting > MOST_OF_TOOLS and isinstance(event, TOOL_OUTPUT):
            raise OutputOverflow
        pending = self._pending
        self._waiting += size_of(event)
        if pending and pending[-1].step == step:
            joined = merged(pending[-1].event, event)
            if joined is not None:
                pending[-1] = Said(joined, step)
                return
        self._waiting += PER_EVENT
        pending.append(Said(event, step))
        if self.held:
            return
        if isinstance(event, StepStart):
            self._wake_soon(self)
        else:
            self._wake(self)

    async def room(self) -> None:
        """A run that talks faster than the database writes waits for it here."""
        while self._waiting > MOST_WAITING and not self.lost.is_set():
            self._drained.clear()
            await self._drained.wait()
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

    def take(self) -> list[Said]:
        taken, self._pending, self._waiting = self._pending, [], 0
        self._drained.set()
        return taken

    def put_back(self, taken: Sequence[Said]) -> None:
        self._pending[:0] = taken
        self._waiting += sum(PER_EVENT + size_of(said.event) for said in taken)

    def flush_begins(self) -> None:
        self._flushed.clear()

    def flush_ended(self) -> None:
        self._flushed.set()

    def lose(self) -> None:
        self._pending.clear()
        self._waiting = 0
        self.lost.set()
        self._drained.set()
        self._on_lost()
