"""Resume: a decision in two words, resume or cancel, said in the words that its ticket takes.

What `resume` means depends on what the ticket is for: the call is run, or run with what is given, or
what is given is its result. A ticket's kind never changes, so it is looked up before any lock.
"""

from dataclasses import dataclass
from enum import StrEnum

from app.control.answers import DecisionRequest
from app.control.desk import Desk
from app.control.judge import find_ticket
from app.control.reading import found_thread, run_not_found
from app.domain.decisions import Action, Answer
from app.domain.errors import NotFound
from app.domain.ids import RunId, ThreadId
from app.domain.json_values import Json, as_object
from app.domain.principals import Principal, Scope
from app.domain.tickets import Ticket
from app.domain.tool_calls import ResumeMode
from app.storage import runs, tickets


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
    desk: Desk, principal: Principal, run_id: RunId, request: ResumeRequest
) -> DecisionRequest:
    """The decision that is meant."""
    principal.require(Scope.DECISIONS_WRITE)
    async with desk.database.reading() as connection:
        if await runs.get(connection, principal.tenant, run_id) is None:
            raise run_not_found(run_id)
        ticket = find_ticket(
            await tickets.of_run(connection, principal.tenant, run_id), request.ticket
        )
    return DecisionRequest(
        ticket=ticket.key,
        answer=_answer(ticket, request),
        decision_id=request.decision_id,
        args_digest=None,
    )


async def run_to_resume(desk: Desk, principal: Principal, thread_id: ThreadId) -> RunId:
    """The run that occupies a thread, or was the last to: a repetition may come after its end."""
    principal.require(Scope.DECISIONS_WRITE)
    async with desk.database.reading() as connection:
        thread = await found_thread(connection, principal.tenant, thread_id)
    run_id = thread.open_run_id or thread.latest_run_id
    if run_id is None:
        raise NotFound("ticket_not_found", "This thread has no run, and so no ticket.")
    return run_id


def _answer(ticket: Ticket, request: ResumeRequest) -> Answer:
    payload, reason = request.payload, request.reason
    if request.action is ResumeAction.CANCEL:
        return Answer(action=Action.CANCEL, result=payload, reason=reason)
    if Action.APPROVE not in ticket.allowed_actions:
        return Answer(action=Action.RESPOND, result=payload, reason=reason)
    if ticket.resume_mode is ResumeMode.PASS_DECISION_TO_TOOL:
        arguments = as_object(payload)
        if arguments is not None:
            return Answer(action=Action.EDIT, arguments=arguments, reason=reason)
        return Answer(action=Action.APPROVE, result=payload, reason=reason)
    return Answer(action=Action.APPROVE, reason=reason)
