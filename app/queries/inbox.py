"""Queries of an approver: which questions wait, and all that one needs to answer one of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.context import ServiceContext
from app.domain.errors import NotFound
from app.domain.ids import AgentVersion, TicketKey
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import RunRecord
from app.domain.slices import Slice
from app.domain.threads.messages import LoggedMessage, Visibility
from app.domain.tickets.tickets import Ticket, TicketFilter
from app.domain.tools.tool_calls import ToolDescriptor
from app.runtime.agent import ResolvedAgent
from app.runtime.handoff import active_agent
from app.storage.runs import runs
from app.storage.threads import messages, threads
from app.storage.tickets import listing, tickets

LAST_MESSAGES = 10
MAX_SIMILAR = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketView:
    """A ticket with what an approver wants to know before answering."""

    ticket: Ticket
    run: RunRecord
    agent_version: AgentVersion
    agent_description: str
    tool: ToolDescriptor | None
    """None when the agent can't be had here any more."""
    last_messages: Sequence[LoggedMessage]
    similar: Sequence[Ticket]
    """Calls of the same tool by the same agent, and what was decided about them."""


async def list_tickets(
    ctx: ServiceContext,
    principal: Principal,
    wanted: TicketFilter,
    *,
    before: tuple[datetime, TicketKey] | None,
    limit: int,
) -> Slice[Ticket]:
    principal.require(Scope.RUNS_READ)
    async with ctx.database.reading() as connection:
        return await listing.page(connection, principal.tenant, wanted, before=before, limit=limit)


async def read_ticket(ctx: ServiceContext, principal: Principal, key: TicketKey) -> TicketView:
    """All on one page: nobody should have to look elsewhere to decide."""
    principal.require(Scope.RUNS_READ)
    tenant = principal.tenant
    async with ctx.database.reading() as connection:
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
        alike = await listing.decided_alike(connection, tenant, found, MAX_SIMILAR)
        at_work = active_agent(await threads.state(connection, tenant, found.thread_id))
    version = run.agent_version
    if at_work is not None and at_work[0] == found.agent_id:
        version = at_work[1] or version
    agent = await ctx.agents.for_tenant(tenant).at_version(found.agent_id, version)
    tool = agent.tools.get(found.tool_name) if isinstance(agent, ResolvedAgent) else None
    return TicketView(
        ticket=found,
        run=run,
        agent_version=version,
        agent_description=agent.spec.description if isinstance(agent, ResolvedAgent) else "",
        tool=None if tool is None else tool.descriptor,
        last_messages=last[::-1],
        similar=alike,
    )
