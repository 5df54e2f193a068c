"""What an executing run asks the database, as patiently as it commits: answers, rules, traces.

An outage is waited for: there may be results that nobody has saved yet, and no call may pass because a
row couldn't be read.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from app.clock import sleep
from app.domain.errors import DatabaseUnavailable
from app.domain.ids import AgentId, CallId
from app.domain.rules.rules import Rule
from app.domain.runs.runs import RunRecord
from app.domain.tickets.tickets import Ticket
from app.domain.tools.crash_evidence import CrashEvidence
from app.storage.postgres.database import Connection
from app.storage.runs import crash_evidence
from app.storage.tickets import rules, tickets
from app.workers.execution_context import ExecutionContext

RETRY_INTERVAL_SECONDS = 0.25

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TicketAnswers:
    """The run's tickets, as the loop asks for them."""

    bench: ExecutionContext
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
        tenant, run_id = self.record.tenant, self.record.id
        return await _patiently(
            self.bench, lambda connection: tickets.of_run(connection, tenant, run_id)
        )


@dataclass(frozen=True, slots=True)
class StoredRules:
    """The rules of the run's tenant, as the gate asks for them."""

    bench: ExecutionContext
    record: RunRecord

    async def for_calls_of(self, agent_id: AgentId) -> Sequence[Rule]:
        of = self.record
        return await _patiently(
            self.bench,
            lambda connection: rules.for_calls(
                connection, of.tenant, of.id, of.thread_id, agent_id
            ),
        )


@dataclass(frozen=True, slots=True)
class StoredTraces:
    """What the log and the list of workers still know of the run's calls."""

    bench: ExecutionContext
    record: RunRecord

    async def evidence_of(self, call_id: CallId, since: datetime | None) -> CrashEvidence:
        of = self.record
        return await _patiently(
            self.bench,
            lambda connection: crash_evidence.evidence_of(
                connection, of.tenant, of.thread_id, of.id, call_id, since=since
            ),
        )


async def _patiently(bench: ExecutionContext, ask: Callable[[Connection], Awaitable[T]]) -> T:
    while True:
        try:
            async with bench.database.reading() as connection:
                return await ask(connection)
        except DatabaseUnavailable:
            await sleep(RETRY_INTERVAL_SECONDS)
