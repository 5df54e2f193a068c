"""Records refused decisions, so that the audit of a call shows who tried to approve it."""

from app.commands.tickets.evaluate import DecisionAttempt
from app.context import ServiceContext
from app.domain.errors import Conflict, DigestMismatch, Forbidden, Gone, Refusal
from app.domain.json_values import digest
from app.domain.principals import Principal
from app.domain.tickets.decisions import Decision
from app.storage.tickets import decisions

REFUSED_ID = "refused:"
"""The prefix of the decision ids of refused attempts, and only of these."""


_RECORDED_REFUSALS = (Forbidden, Conflict, Gone, DigestMismatch)
"""Refusals that are recorded: those of a person, ticket or argument, not those of a malformed request."""


async def record_rejection(
    ctx: ServiceContext, principal: Principal, attempted: DecisionAttempt, refusal: Refusal
) -> None:
    """Record a refused attempt, in a transaction of its own: the command's has been rolled back."""
    ticket, request = attempted.ticket, attempted.request
    if ticket is None or request is None or not isinstance(refusal, _RECORDED_REFUSALS):
        return
    answer = request.answer
    name = digest([principal.subject, refusal.code, answer.action.value])
    decision = Decision(
        decision_id=f"{REFUSED_ID}{name}",
        answer=answer,
        subject=principal.subject,
        at=ctx.clock.now(),
    )
    async with ctx.database.transaction() as connection:
        await decisions.record_refusal(
            connection, principal.tenant, ticket.id, decision, refusal.code
        )
