"""Queries of an approver: which questions wait, and all that one needs to answer one of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.control.desk import Desk
from app.domain.errors import NotFound
from app.domain.ids import AgentVersion, TicketKey
from app.domain.messages import LoggedMessage, Visibility
from app.domain.principals import Principal, Scope
from app.domain.runs import RunRecord
from app.domain.slices import Slice
from app.domain.tickets import Ticket, TicketFilter
from app.domain.tool_calls import ToolDescriptor
from app.runtime.agent import ResolvedAgent
from app.runtime.handoff import agent_at_work
from app.storage import messages, runs, threads, ticket_lists, tickets

LAST_MESSAGES = 10
ALIKE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketPage:
    """A ticket with what an approver wants to know before answering."""

    ticket: Ticket
    run: RunRecord
    agent_version: AgentVersion
    agent_description: str
    tool: ToolDescriptor | None
    """None when the agent can't be had here any more."""
    last_messages: Sequence[LoggedMessage]
    alike: Sequence[Ticket]
    """Calls of the same tool by the same agent, and what was decided about them."""


async def page(
    desk: Desk,
    principal: Principal,
    wanted: TicketFilter,
    *,
    before: tuple[datetime, TicketKey] | None,
    limit: int,
) -> Slice[Ticket]:
    principal.require(Scope.RUNS_READ)
    async with desk.database.reading() as connection:
        return await ticket_lists.page(
            connection, principal.tenant, wanted, before=before, limit=limit
        )


async def ticket(desk: Desk, principal: Principal, key: TicketKey) -> TicketPage:
    """All on one page: nobody should have to look elsewhere to decide."""
    principal.require(Scope.RUNS_READ)
    tenant = principal.tenant
    async with desk.database.reading() as connection:
        found = await tickets.get(connection, tenant, key)
        run = None if found is None else await runs.get(connection, tenant, found.run_id)
        if found is None or run is None:
            raise NotFound("ticket_not_found", f"There is no ticket {key}.")
        last = await messages.page(
            connection,
            tenant,
            found.thread_id,
            after=None,
            before=None,
            descending=True,
            run_id=None,
            visibility=Visibility.ALL,
            limit=LAST_MESSAGES,
        )
        alike = await ticket_lists.decided_alike(connection, tenant, found, ALIKE)
        at_work = agent_at_work(await threads.state(connection, tenant, found.thread_id))
    version = run.agent_version
    if at_work is not None and at_work[0] == found.agent_id:
        version = at_work[1] or version
    agent = await desk.roster.of(tenant).at_version(found.agent_id, version)
    tool = agent.tools.get(found.tool_name) if isinstance(agent, ResolvedAgent) else None
    return TicketPage(
        ticket=found,
        run=run,
        agent_version=version,
        agent_description=agent.spec.description if isinstance(agent, ResolvedAgent) else "",
        tool=None if tool is None else tool.descriptor,
        last_messages=last[::-1],
        alike=alike,
    )
