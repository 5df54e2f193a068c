"""Tickets: durable questions that suspend a run, each about one exact call.

    open ──► decided | expired | void

A ticket is an authorization boundary: it is bound to the run, the tool and the digest of the arguments. It is
applied once, and never changes after it left `open`.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum

from msgspec import Struct

from app.domain.ids import AgentId, CallId, RunId, ThreadId, TicketKey
from app.domain.json_values import Json, JsonObject
from app.domain.principals import Principal
from app.domain.signals import EventWait
from app.domain.tickets.decisions import Action, Decision
from app.domain.tickets.terms import NO_TERMS, OnExpiry, TicketTerms
from app.domain.tools.tool_calls import Effect, ResumeMode


class TicketKind(StrEnum):
    APPROVAL = "approval"
    INPUT = "input"
    FRONTEND = "frontend"
    OUTCOME_UNKNOWN = "outcome_unknown"
    LIMIT = "limit"
    AUTH = "auth"
    CHILD = "child"
    EVENT = "event"


APPROVE_ACTION = "tool:Approve"
"""The reason of tickets by which a running tool asks for approval: `ctx.approve`."""
ASK_ACTION = "tool:Ask"
"""The reason of tickets by which a running tool asks a question: `ctx.ask`."""
ASK_SERVER_ACTION = "tool:AskServer"
"""The reason of tickets about a question of an MCP server."""
VISIT_ACTION = "tool:Visit"
"""The reason of tickets about an address that a person has to visit for an MCP server."""
OUTCOME_UNKNOWN_ACTION = "tool:OutcomeUnknown"
_ASKED_BY_TOOLS = frozenset({APPROVE_ACTION, ASK_ACTION, ASK_SERVER_ACTION, VISIT_ACTION})

ANSWERED_BY_PROGRAMS = frozenset({TicketKind.CHILD, TicketKind.EVENT})
"""Kinds that inboxes leave out: a child run or a signal answers them."""


class TicketStatus(StrEnum):
    OPEN = "open"
    DECIDED = "decided"
    EXPIRED = "expired"
    VOID = "void"


class TicketSort(StrEnum):
    """What the order of a list of tickets is about."""

    CREATED = "created_at"
    EXPIRY = "expires_at"
    """Tickets that never expire count as later than all others."""


NEVER = datetime(9000, 1, 1, tzinfo=UTC)
"""The place of tickets that never expire, in lists by expiry: later than any expiry."""


class NoticeKind(StrEnum):
    """The kinds of changes that the inbox publishes."""

    OPENED = "opened"
    VOTED = "voted"
    DECIDED = "decided"
    REMINDER = "reminder"
    EXPIRED = "expired"
    VOID = "void"


TICKET_TRANSITIONS: Mapping[TicketStatus, frozenset[TicketStatus]] = {
    TicketStatus.OPEN: frozenset(TicketStatus),
    TicketStatus.DECIDED: frozenset({TicketStatus.DECIDED}),
    TicketStatus.EXPIRED: frozenset({TicketStatus.EXPIRED}),
    TicketStatus.VOID: frozenset({TicketStatus.VOID}),
}
"""The state diagram in the documents is compared with this."""


def asks_from_tool(mode: ResumeMode, reason: str | None) -> bool:
    return mode is ResumeMode.PASS_DECISION_TO_TOOL and reason in _ASKED_BY_TOOLS


class Ticket(Struct, frozen=True, kw_only=True):
    """`id` is unique in the tenant, `name` in the run."""

    id: TicketKey
    run_id: RunId
    thread_id: ThreadId
    agent_id: AgentId
    """The agent that made the call; the run may have been handed off since."""
    name: str
    kind: TicketKind
    call_id: CallId | None
    step_index: int
    tool_name: str
    arguments: Json
    args_digest: str
    resume_mode: ResumeMode
    allowed_actions: frozenset[Action]
    response_schema: JsonObject | None
    reason: str | None
    message: str
    status: TicketStatus
    created_at: datetime
    updated_at: datetime
    decision: Decision | None = None
    applied_at: datetime | None = None
    evidence: JsonObject | None = None
    terms: TicketTerms = NO_TERMS
    event: EventWait | None = None
    """The event that a ticket of kind `event` waits for."""
    expires_at: datetime | None = None
    """By the database's clock; None until the ticket is stored."""
    carry: JsonObject | None = None
    """What the tool needs to continue the call after the decision. No client sees it."""
    tool_effect: Effect | None = None
    """What the call's tool does; None for limits and for questions of remote agents."""

    @property
    def is_question_of_tool(self) -> bool:
        """Whether the running tool asks, and gets the decision when it is called again."""
        return asks_from_tool(self.resume_mode, self.reason)

    @property
    def on_expiry(self) -> OnExpiry | None:
        """What happens at `expires_at`; None if the ticket never expires."""
        return None if self.expires_at is None else self.terms.on_expiry

    @property
    def is_unsettled(self) -> bool:
        """Whether the ticket is open, or decided or expired and not applied."""
        is_over = self.status in (TicketStatus.DECIDED, TicketStatus.EXPIRED)
        return self.status is TicketStatus.OPEN or (is_over and self.applied_at is None)


def decided_by_people(tickets: Iterable[Ticket]) -> list[Ticket]:
    """The tickets that wait for a person."""
    return [ticket for ticket in tickets if ticket.kind not in ANSWERED_BY_PROGRAMS]


def can_resume(unsettled: Collection[Ticket]) -> bool:
    """Whether a run with these unsettled tickets can resume.

    An open limit ticket holds the whole run, so decisions on other tickets wait with it.
    """
    is_held = any(
        each.kind is TicketKind.LIMIT and each.status is TicketStatus.OPEN for each in unsettled
    )
    return not is_held and any(
        each.is_unsettled and each.status is not TicketStatus.OPEN for each in unsettled
    )


class TicketFilter(Struct, frozen=True, kw_only=True):
    """The filter of a ticket list."""

    status: TicketStatus | None = None
    kind: TicketKind | None = None
    """Without a kind, only tickets that people answer."""
    agent_id: AgentId | None = None
    tool_name: str | None = None
    run_id: RunId | None = None
    thread_id: ThreadId | None = None
    root_run_id: RunId | None = None
    """Only tickets of the runs in the tree below this run, and of the run itself."""
    expires_before: datetime | None = None
    decidable_by: Principal | None = None
    """Only tickets that this person may decide and hasn't voted on."""
