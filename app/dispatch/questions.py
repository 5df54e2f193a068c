"""What an executing run asks the database, as patiently as it commits: answers, rules, traces.

An outage is waited for: there may be results that nobody has saved yet, and no call may pass because a
row couldn't be read.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from app.clock import pause
from app.dispatch.bench import Workbench
from app.domain.errors import DatabaseAway
from app.domain.ids import AgentId, CallId
from app.domain.rules import Rule
from app.domain.runs import RunRecord
from app.domain.tickets import Ticket
from app.domain.traces import CallTrace
from app.storage import rules, tickets, traces
from app.storage.database import Connection

LOOK_AGAIN = 0.25

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answers:
    """The run's tickets, as the loop asks for them."""

    bench: Workbench
    record: RunRecord

    async def unapplied(self) -> Sequence[Ticket]:
        return [ticket for ticket in await self._all() if ticket.is_unsettled]

    async def names_used(self) -> Collection[str]:
        return {ticket.ticket_id for ticket in await self._all()}

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
class Remembered:
    """The rules of the run's tenant, as the gate asks for them."""

    bench: Workbench
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
class Traced:
    """What the log and the list of workers still know of the run's calls."""

    bench: Workbench
    record: RunRecord

    async def of_call(self, call_id: CallId, since: datetime | None) -> CallTrace:
        of = self.record
        return await _patiently(
            self.bench,
            lambda connection: traces.of_call(
                connection, of.tenant, of.thread_id, of.id, call_id, since=since
            ),
        )


async def _patiently(bench: Workbench, ask: Callable[[Connection], Awaitable[T]]) -> T:
    while True:
        try:
            async with bench.database.reading() as connection:
                return await ask(connection)
        except DatabaseAway:
            await pause(LOOK_AGAIN)
