"""What an executing run reads from the database: tickets, rules and crash evidence.

Reads are retried during an outage: the run may hold results that aren't saved yet, and no call may be
allowed because a rule couldn't be read.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime
from typing import TypeVar

from msgspec import Struct

from app.domain.ids import AgentId, CallId
from app.domain.rules.rules import Rule
from app.domain.runs.runs import RunRecord
from app.domain.tickets.tickets import Ticket
from app.domain.tools.crash_evidence import CrashEvidence
from app.storage.postgres.database import Connection
from app.storage.postgres.retrying import retry_while_unavailable
from app.storage.runs import crash_evidence
from app.storage.tickets import rules, tickets
from app.workers.execution_context import ExecutionContext

T = TypeVar("T")


class TicketAnswers(Struct, frozen=True):
    """The run's tickets, for the loop."""

    context: ExecutionContext
    record: RunRecord

    async def unapplied(self) -> Sequence[Ticket]:
        return [ticket for ticket in await self._all() if ticket.is_unsettled]

    async def names_used(self) -> Collection[str]:
        return {ticket.name for ticket in await self._all()}

    async def of_call(self, step_index: int, call_id: CallId) -> Sequence[Ticket]:
        return [
            ticket
            for ticket in await self._all()
            if (ticket.step_index, ticket.call_id) == (step_index, call_id)
        ]

    async def _all(self) -> Sequence[Ticket]:
        if self.record.attempt == 1:
            # Tickets are opened by the commit that suspends the run, and a suspended run gets a new attempt.
            return ()
        tenant, run_id = self.record.tenant, self.record.id
        return await _read_with_retries(
            self.context, lambda connection: tickets.of_run(connection, tenant, run_id)
        )


class StoredRules(Struct, frozen=True):
    """The rules of the run's tenant, for the approval gate."""

    context: ExecutionContext
    record: RunRecord

    async def for_calls_of(self, agent_id: AgentId) -> Sequence[Rule]:
        of = self.record
        return await _read_with_retries(
            self.context,
            lambda connection: rules.for_calls(
                connection, of.tenant, of.id, of.thread_id, agent_id
            ),
        )


class StoredCrashEvidence(Struct, frozen=True):
    """Crash evidence: what the event log and the workers' rows show of the run's interrupted calls."""

    context: ExecutionContext
    record: RunRecord

    async def evidence_of(self, call_id: CallId, since: datetime | None) -> CrashEvidence:
        of = self.record
        return await _read_with_retries(
            self.context,
            lambda connection: crash_evidence.evidence_of(
                connection, of.tenant, of.thread_id, of.id, call_id, since=since
            ),
        )


async def _read_with_retries(
    context: ExecutionContext, read: Callable[[Connection], Awaitable[T]]
) -> T:
    async def read_once() -> T:
        async with context.database.reading_by_key() as connection:
            return await read(connection)

    return await retry_while_unavailable(read_once)
