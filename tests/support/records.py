"""Constructors for a run record and a ticket with defaults."""

from datetime import UTC, datetime
from typing import Any

from app.domain.agents.specs import AgentSpec
from app.domain.ids import AgentId, CallId, RunId, ThreadId, TicketKey
from app.domain.principals import DEFAULT_TENANT
from app.domain.runs.runs import Created, Lineage, MessageOutput, RunRecord, Usage
from app.domain.structs import replace
from app.domain.tickets.opening import allowed_actions, arguments_digest
from app.domain.tickets.tickets import Ticket, TicketKind, TicketStatus
from app.domain.tools.tool_calls import ResumeMode

AT = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)

_SPEC = AgentSpec(id=AgentId("clerk"), model="scripted")
_RECORD = RunRecord(
    tenant=DEFAULT_TENANT,
    id=RunId("run"),
    thread_id=ThreadId("thread"),
    agent_id=_SPEC.id,
    agent_version=_SPEC.version,
    state=Created(True),
    lineage=Lineage(RunId("run")),
    request={},
    input=None,
    output=MessageOutput(),
    steps=0,
    usage=Usage(),
    run_state=None,
    metadata={},
    started_by="ann",
    attempt=0,
    dispatch_id=None,
    losses=0,
    cancel_requested_at=None,
    created_at=AT,
    started_at=None,
    updated_at=AT,
    events_from=1,
)
_MODE = ResumeMode.REPLAY_TOOL_CALL
_TICKET = Ticket(
    id=TicketKey("key"),
    run_id=_RECORD.id,
    thread_id=_RECORD.thread_id,
    agent_id=_SPEC.id,
    name="c1",
    kind=TicketKind.APPROVAL,
    call_id=CallId("c1"),
    step_index=0,
    tool_name="pay",
    arguments={"amount": 5},
    args_digest=arguments_digest("pay", {"amount": 5}),
    resume_mode=_MODE,
    allowed_actions=allowed_actions(TicketKind.APPROVAL, _MODE),
    response_schema=None,
    reason=None,
    message="Pay 5?",
    status=TicketStatus.OPEN,
    created_at=AT,
    updated_at=AT,
)


def a_record(**changes: Any) -> RunRecord:
    """A run that was admitted and never executed."""
    return replace(_RECORD, **changes)


def a_ticket(**changes: Any) -> Ticket:
    """An open approval ticket."""
    return replace(_TICKET, **changes)
