"""The filters of the list of tickets, and of their count."""

from typing import Annotated, Literal

from fastapi import Query
from msgspec import Struct

from app.api.schemas.common import Instant, Str, Uuid
from app.api.schemas.thread_names import ThreadQuery
from app.domain.ids import AgentId, RunId
from app.domain.principals import Principal
from app.domain.tickets.tickets import TicketFilter, TicketKind, TicketStatus
from app.http.query_params import in_event_loop

ListedKind = Literal["approval", "input", "frontend", "outcome_unknown", "limit", "auth", "event"]
AgentName = Annotated[Str | None, Query(max_length=200)]
ToolName = Annotated[
    Str | None, Query(max_length=200, description="Only tickets about calls of this tool.")
]


class TicketQuery(Struct, frozen=True):
    """Which tickets a list has, or are counted."""

    thread: Annotated[ThreadQuery, in_event_loop(ThreadQuery)]
    status: Annotated[
        TicketStatus | None, Query(description="Only tickets with this status, such as `open`.")
    ] = None
    kind: Annotated[
        ListedKind | None,
        Query(description="Only tickets of this kind. `event` is listed only if it is named here."),
    ] = None
    agent_id: AgentName = None
    tool_name: ToolName = None
    run_id: Uuid | None = None
    root_run_id: Annotated[
        Uuid | None, Query(description="Only tickets of this run and of the runs below it.")
    ] = None
    assignee: Annotated[
        Literal["me"] | None,
        Query(description="`me`: only open tickets that you may decide and haven't voted on."),
    ] = None
    expires_before: Instant | None = None

    def of(self, principal: Principal) -> TicketFilter:
        return TicketFilter(
            status=self.status,
            kind=None if self.kind is None else TicketKind(self.kind),
            agent_id=None if self.agent_id is None else AgentId(self.agent_id),
            tool_name=self.tool_name,
            run_id=None if self.run_id is None else RunId(self.run_id),
            thread_id=self.thread.thread_in(principal.tenant),
            root_run_id=None if self.root_run_id is None else RunId(self.root_run_id),
            expires_before=self.expires_before,
            decidable_by=None if self.assignee is None else principal,
        )


TicketsWanted = Annotated[TicketQuery, in_event_loop(TicketQuery)]
