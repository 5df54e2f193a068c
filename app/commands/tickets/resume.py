"""Resume: a decision in two words, resume or cancel, said in the words that its ticket takes.

What `resume` means depends on what the ticket is for: the call is run, or run with what is given, or
what is given is its result. A ticket's kind never changes, so it is looked up before any lock.
"""

from dataclasses import dataclass
from enum import StrEnum

from app.commands.tickets.decision_types import DecisionRequest
from app.commands.tickets.evaluate import find_ticket
from app.context import ServiceContext
from app.domain.errors import NotFound
from app.domain.ids import RunId, ThreadId
from app.domain.json_values import Json, as_object
from app.domain.principals import Principal, Scope
from app.domain.tickets.decisions import Action, DecisionAnswer
from app.domain.tickets.tickets import Ticket
from app.domain.tools.tool_calls import ResumeMode
from app.queries.records import found_thread, run_not_found
from app.storage.runs import runs
from app.storage.tickets import tickets


class ResumeAction(StrEnum):
    RESUME = "resume"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRequest:
    """`ticket` is a ticket's name in the run, its own id, or its call's id."""

    ticket: str
    action: ResumeAction
    payload: Json
    reason: str | None
    decision_id: str | None


async def as_decision(
    ctx: ServiceContext, principal: Principal, run_id: RunId, request: ResumeRequest
) -> DecisionRequest:
    """The decision that is meant."""
    principal.require(Scope.DECISIONS_WRITE)
    async with ctx.database.reading() as connection:
        if await runs.get(connection, principal.tenant, run_id) is None:
            raise run_not_found(run_id)
        ticket = find_ticket(
            await tickets.of_run(connection, principal.tenant, run_id), request.ticket
        )
    return DecisionRequest(
        ticket=ticket.id,
        answer=_answer(ticket, request),
        decision_id=request.decision_id,
        args_digest=None,
    )


async def run_to_resume(ctx: ServiceContext, principal: Principal, thread_id: ThreadId) -> RunId:
    """The run that occupies a thread, or was the last to: a repetition may come after its end."""
    principal.require(Scope.DECISIONS_WRITE)
    async with ctx.database.reading() as connection:
        thread = await found_thread(connection, principal.tenant, thread_id)
    run_id = thread.open_run_id or thread.latest_run_id
    if run_id is None:
        raise NotFound("ticket_not_found", "This thread has no run, and so no ticket.")
    return run_id


def _answer(ticket: Ticket, request: ResumeRequest) -> DecisionAnswer:
    payload, reason = request.payload, request.reason
    if request.action is ResumeAction.CANCEL:
        return DecisionAnswer(action=Action.CANCEL, result=payload, reason=reason)
    if Action.APPROVE not in ticket.allowed_actions:
        return DecisionAnswer(action=Action.RESPOND, result=payload, reason=reason)
    if ticket.resume_mode is ResumeMode.PASS_DECISION_TO_TOOL:
        arguments = as_object(payload)
        if arguments is not None:
            return DecisionAnswer(action=Action.EDIT, arguments=arguments, reason=reason)
        return DecisionAnswer(action=Action.APPROVE, result=payload, reason=reason)
    return DecisionAnswer(action=Action.APPROVE, reason=reason)
