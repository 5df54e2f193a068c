"""What a run reads and writes while it is executed: checkpoints, tickets, rules, inputs and events."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from app.domain.checkpoints import Checkpoint, CheckpointAnswer
from app.domain.events.agent_events import AgentEvent
from app.domain.ids import AgentId, CallId
from app.domain.rules.rules import Rule
from app.domain.threads.messages import LoggedMessage
from app.domain.tickets.tickets import Ticket
from app.domain.tools.crash_evidence import CrashEvidence


class CheckpointStore(Protocol):
    async def commit(self, checkpoint: Checkpoint) -> CheckpointAnswer:
        """Write all of it or nothing; raise `OwnershipLost` if another worker owns the run."""


class TicketAnswers(Protocol):
    async def of_call(self, step_index: int, call_id: CallId) -> Sequence[Ticket]:
        """All tickets of one call, oldest first."""

    async def unapplied(self) -> Sequence[Ticket]:
        """The run's tickets that are open, or answered and not applied, read now."""

    async def names_used(self) -> Collection[str]:
        """The names of all tickets that the run has ever opened."""


class RememberedRules(Protocol):
    async def for_calls_of(self, agent_id: AgentId) -> Sequence[Rule]:
        """The rules that people's decisions made for an agent's calls in this run, read now."""


class NoRememberedRules:
    async def for_calls_of(self, agent_id: AgentId) -> Sequence[Rule]:
        return ()


class CrashEvidenceReader(Protocol):
    async def evidence_of(self, call_id: CallId, since: datetime | None) -> CrashEvidence:
        """The evidence about a call of the run that was handed to its tool at that time."""


class NoCrashEvidence:
    async def evidence_of(self, call_id: CallId, since: datetime | None) -> CrashEvidence:
        return CrashEvidence()


class Inbox(Protocol):
    async def enter_log(self, next_seq: int) -> Sequence[LoggedMessage]:
        """Append the run's pending inputs to the log, and return the log from `next_seq` on. Raise
        `OwnershipLost` if another worker owns the run."""


class EventEmitter(Protocol):
    def emit(self, event: AgentEvent, step: int | None) -> None:
        """Emit an event; it is durable before any client sees it."""

    async def wait_for_capacity(self) -> None:
        """Wait while too many emitted events aren't durable yet."""
