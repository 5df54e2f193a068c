"""A run's events, checkpoints and ticket answers in memory, fenced by its attempt."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from app.domain.checkpoints import (
    Checkpoint,
    CheckpointAnswer,
    CheckpointSaved,
    DecidedConcurrently,
    InputOrTasksPending,
    PendingEvent,
    finish_as_saved,
)
from app.domain.errors import OwnershipLost
from app.domain.events.agent_events import AgentEvent
from app.domain.events.event_sizes import merge_deltas
from app.domain.ids import CallId
from app.domain.runs.runs import Running, Waiting, WaitingReason
from app.domain.tickets.tickets import Ticket
from app.testing.thread_rows import ThreadRows


@dataclass(slots=True)
class MemoryJournal:
    """The reads and writes of one execution. It writes nothing once another attempt owns the run."""

    rows: ThreadRows
    attempt: int
    on_lost: Callable[[], None]
    pending: list[PendingEvent] = field(default_factory=list)
    is_lost: bool = False

    def emit(self, event: AgentEvent, step: int | None) -> None:
        if self.pending and self.pending[-1].step == step:
            merged = merge_deltas(self.pending[-1].event, event)
            if merged is not None:
                self.pending[-1] = PendingEvent(merged, step)
                return
        self.pending.append(PendingEvent(event, step))

    async def wait_for_capacity(self) -> None:
        if self.is_lost:
            raise OwnershipLost(self.rows.record.id)

    async def flush(self) -> None:
        pending, self.pending = self.pending, []
        if self.owns_run():
            self.rows.log_events(pending)
        else:
            self._lose()

    async def commit(self, checkpoint: Checkpoint) -> CheckpointAnswer:
        if not self.owns_run() or (
            checkpoint.messages and checkpoint.next_seq != len(self.rows.log) + 1
        ):
            self._lose()
            raise OwnershipLost(checkpoint.run_id)
        if _is_pause(checkpoint):
            if self.rows.record.pause is None and checkpoint.pause is None:
                return InputOrTasksPending(0, 0)
        elif isinstance(checkpoint.state, Waiting) and self.rows.has_answer(checkpoint):
            return DecidedConcurrently()
        paused = self.rows.write_pause(checkpoint)
        self.rows.write(checkpoint)
        pending, self.pending = self.pending, []
        requested = [] if paused is None else [PendingEvent(paused, None)]
        is_paused = self.rows.record.pause is not None
        saved = CheckpointSaved(is_paused=is_paused, pause_requested=paused)
        own = [finish_as_saved(one, saved) for one in checkpoint.pending_events]
        self.rows.log_events([*pending, *requested, *own])
        return saved

    async def of_call(self, step_index: int, call_id: CallId) -> Sequence[Ticket]:
        return [
            ticket
            for ticket in self.rows.tickets.values()
            if (ticket.step_index, ticket.call_id) == (step_index, call_id)
        ]

    async def unapplied(self) -> Sequence[Ticket]:
        return self.rows.unsettled()

    async def names_used(self) -> Collection[str]:
        return {ticket.name for ticket in self.rows.tickets.values()}

    def owns_run(self) -> bool:
        record = self.rows.record
        return record.attempt == self.attempt and isinstance(record.state, Running)

    def _lose(self) -> None:
        self.is_lost = True
        self.on_lost()


def _is_pause(checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint suspends for a pause. A paused run waits even if all tickets are answered."""
    state = checkpoint.state
    return isinstance(state, Waiting) and state.reason is WaitingReason.MANUAL_PAUSE
