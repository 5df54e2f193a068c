"""The ticket inbox: lists tickets, and reads one with all that an approver needs to decide it."""

from collections.abc import Sequence

from msgspec import Struct

from app.context import ServiceContext
from app.domain.errors import NotFound
from app.domain.ids import AgentVersion, TicketKey
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import RunRecord
from app.domain.slices import BoundedCount, PageRequest, Slice
from app.domain.threads.messages import LoggedMessage, MessageFilter, Visibility
from app.domain.tickets.listed import ListedTicket
from app.domain.tickets.tickets import Ticket, TicketFilter, TicketSort
from app.domain.tools.tool_calls import ToolDescriptor
from app.runtime.agent import ResolvedAgent
from app.runtime.handoff import active_agent
from app.storage.runs import runs
from app.storage.threads import messages, threads
from app.storage.tickets import listing

LAST_MESSAGES = 10
MAX_SIMILAR = 20


class TicketView(Struct, frozen=True, kw_only=True):
    """A ticket with its context for an approver."""

    listed: ListedTicket
    run: RunRecord
    agent_version: AgentVersion
    agent_description: str
    tool: ToolDescriptor | None
    """None if the agent version isn't installed here any more."""
    last_messages: Sequence[LoggedMessage]
    similar: Sequence[Ticket]
    """Decided tickets for calls of the same tool by the same agent."""


async def list_tickets(
    ctx: ServiceContext,
    principal: Principal,
    wanted: TicketFilter,
    requested: PageRequest,
    sort: TicketSort = TicketSort.CREATED,
) -> Slice[ListedTicket]:
    principal.require(Scope.RUNS_READ)
    async with ctx.database.reading() as connection:
        return await listing.page(connection, principal.tenant, wanted, sort, requested)


async def count_tickets(
    ctx: ServiceContext, principal: Principal, wanted: TicketFilter, period: PageRequest
) -> BoundedCount:
    """The number of tickets of a list, for a badge: counted up to a limit, so that it stays fast."""
    principal.require(Scope.RUNS_READ)
    async with ctx.database.reading() as connection:
        return await listing.count(connection, principal.tenant, wanted, period)


async def read_ticket(ctx: ServiceContext, principal: Principal, key: TicketKey) -> TicketView:
    """Read a ticket with its run, tool, last messages and similar tickets."""
    principal.require(Scope.RUNS_READ)
    tenant = principal.tenant
    async with ctx.database.reading() as connection:
        listed = await listing.get(connection, tenant, key)
        run = None if listed is None else await runs.get(connection, tenant, listed.ticket.run_id)
        if listed is None or run is None:
            raise NotFound("ticket_not_found", f"There is no ticket {key}.")
        found = listed.ticket
        last = await messages.page(
            connection,
            tenant,
            found.thread_id,
            MessageFilter(visibility=Visibility.ALL),
            PageRequest(limit=LAST_MESSAGES),
        )
        alike = await listing.decided_for_same_tool(connection, tenant, found, MAX_SIMILAR)
        active = active_agent(await threads.state(connection, tenant, found.thread_id))
    version = run.agent_version
    if active is not None and active[0] == found.agent_id:
        version = active[1] or version
    agent = await ctx.agents.for_tenant(tenant).at_version(found.agent_id, version)
    tool = agent.tools.get(found.tool_name) if isinstance(agent, ResolvedAgent) else None
    return TicketView(
        listed=listed,
        run=run,
        agent_version=version,
        agent_description=agent.spec.description if isinstance(agent, ResolvedAgent) else "",
        tool=None if tool is None else tool.descriptor,
        last_messages=last[::-1],
        similar=alike,
    )


def obstacle(principal: Principal, found: ListedTicket) -> str | None:
    """Why a person may not decide the ticket; None if they may."""
    if not principal.may(Scope.DECISIONS_WRITE):
        return f"it needs the scope {Scope.DECISIONS_WRITE.value!r}, which your key doesn't have"
    rule = found.ticket.terms.approvers
    if rule is None:
        return None
    broken = rule.broken_by(
        principal.scopes,
        is_admin=principal.is_admin,
        is_starter=found.lineage.started_by == principal.subject,
    )
    return None if broken is None else broken[1]
