"""Seeded faults, put between the loop and its ports.

Each fault drops or adds what a faulty loop would drop or add itself. Tables and tools see no difference.
"""

from dataclasses import dataclass, field

from app.domain.checkpoints import Checkpoint, CheckpointAnswer
from app.domain.ids import TicketKey
from app.domain.runs.runs import Done
from app.domain.runs.terminations import Cancelled
from app.domain.structs import replace
from app.domain.threads.messages import Role
from app.domain.tickets.tickets import Ticket
from app.domain.tools.tool_calls import INTERRUPTED, CallStatus
from app.runtime.active_run import ActiveRun
from app.runtime.ports.persistence import CheckpointStore


@dataclass(slots=True)
class _Unmarked:
    inner: CheckpointStore

    async def commit(self, checkpoint: Checkpoint) -> CheckpointAnswer:
        unmarked = tuple(
            replace(state, status=CallStatus.PENDING)
            if state.status is CallStatus.RUNNING and state.unreported_result is None
            else state
            for state in checkpoint.calls
        )
        return await self.inner.commit(replace(checkpoint, calls=unmarked))


@dataclass(slots=True)
class _Forgetful:
    inner: CheckpointStore

    async def commit(self, checkpoint: Checkpoint) -> CheckpointAnswer:
        state = checkpoint.state
        if isinstance(state, Done) and isinstance(state.termination, Cancelled):
            without_results = tuple(
                message
                for message in checkpoint.messages
                if message.role is not Role.TOOL or message.text != INTERRUPTED
            )
            checkpoint = replace(checkpoint, messages=without_results)
        return await self.inner.commit(checkpoint)


def runs_unmarked(run: ActiveRun) -> None:
    """Calls run without the mark that they start."""
    run.store = _Unmarked(run.store)


def forgets_open_calls(run: ActiveRun) -> None:
    """A cancelled run keeps calls without a result."""
    run.store = _Forgetful(run.store)


@dataclass(slots=True)
class AppliesTwice:
    """A resumption applies decisions that were applied before."""

    answered: dict[TicketKey, Ticket] = field(default_factory=dict)

    def __call__(self, run: ActiveRun) -> None:
        known = {ticket.id for ticket in run.tickets}
        again = [
            ticket
            for ticket in self.answered.values()
            if ticket.id not in known
            and ticket.run_id == run.record.id
            and ticket.call_id in run.open_calls
        ]
        run.tickets = [*again, *run.tickets]
        self.answered |= {ticket.id: ticket for ticket in run.tickets if ticket.decision}
