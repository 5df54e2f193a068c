"""A run's voice, store and answers in memory, under one attempt and with the guards of the real ones."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from app.domain.checkpoints import (
    Checkpoint,
    CheckpointAnswer,
    DecidedMeanwhile,
    Said,
    Saved,
    Unsettled,
)
from app.domain.errors import OwnershipLost
from app.domain.event_sizes import merged
from app.domain.events import AgentEvent
from app.domain.ids import CallId
from app.domain.runs import Running, Waiting, WaitingReason
from app.domain.tickets import Ticket
from tests.support.memory_rows import MemoryRows


@dataclass(slots=True)
class MemoryVoice:
    """A run's events, store and answers under one attempt."""

    rows: MemoryRows
    attempt: int
    on_lost: Callable[[], None]
    pending: list[Said] = field(default_factory=list)
    is_lost: bool = False

    def say(self, event: AgentEvent, step: int | None) -> None:
        if self.pending and self.pending[-1].step == step:
            joined = merged(self.pending[-1].event, event)
            if joined is not None:
                self.pending[-1] = Said(joined, step)
                return
        self.pending.append(Said(event, step))

    async def room(self) -> None:
        if self.is_lost:
            raise OwnershipLost(self.rows.record.id)

    async def flush(self) -> None:
        said, self.pending = self.pending, []
        if self._is_ours():
            self.rows.log_events(said)
        else:
            self._lose()

    def hold(self) -> None:
        """Nobody else commits it."""

    def drop(self) -> None:
        self.pending.clear()

    async def commit(self, checkpoint: Checkpoint) -> CheckpointAnswer:
        if not self._is_ours() or (
            checkpoint.messages and checkpoint.next_seq != len(self.rows.log) + 1
        ):
            self._lose()
            raise OwnershipLost(checkpoint.run_id)
        if _is_pause(checkpoint):
            if self.rows.record.pause is None and checkpoint.pause is None:
                return Unsettled(0, 0)
        elif isinstance(checkpoint.state, Waiting) and self.rows.has_answer(checkpoint):
            return DecidedMeanwhile()
        paused = self.rows.write_pause(checkpoint)
        self.rows.write(checkpoint)
        said, self.pending = self.pending, []
        requested = [] if paused is None else [Said(paused, None)]
        self.rows.log_events([*said, *requested, *checkpoint.said])
        return Saved(is_paused=self.rows.record.pause is not None, pause_requested=paused)

    async def of_call(self, step_index: int, call_id: CallId) -> Sequence[Ticket]:
        return [
            ticket
            for ticket in self.rows.tickets.values()
            if (ticket.step_index, ticket.call_id) == (step_index, call_id)
        ]

    async def unapplied(self) -> Sequence[Ticket]:
        return self.rows.unsettled()

    async def names_used(self) -> Collection[str]:
        return {ticket.ticket_id for ticket in self.rows.tickets.values()}

    def _is_ours(self) -> bool:
        record = self.rows.record
        return record.attempt == self.attempt and isinstance(record.state, Running)

    def _lose(self) -> None:
        self.is_lost = True
        self.on_lost()


def _is_pause(checkpoint: Checkpoint) -> bool:
    """A paused run waits whether there are answers or not."""
    state = checkpoint.state
    return isinstance(state, Waiting) and state.reason is WaitingReason.MANUAL_PAUSE
