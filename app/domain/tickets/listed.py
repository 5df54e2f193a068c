"""A ticket with what an approver sees in a list: the votes so far, and the runs above its run."""

from collections.abc import Sequence

from msgspec import Struct

from app.domain.ids import AgentId, RunId
from app.domain.tickets.decisions import Decision
from app.domain.tickets.tickets import Ticket


class TicketLineage(Struct, frozen=True, kw_only=True):
    """Who started the run that asks, and the runs above it. A run without parent is its own root."""

    started_by: str
    parent_run_id: RunId | None
    root_run_id: RunId
    root_agent_id: AgentId


class ListedTicket(Struct, frozen=True):
    """`votes` are the answers that count toward the quorum, oldest first."""

    ticket: Ticket
    lineage: TicketLineage
    votes: Sequence[Decision]
