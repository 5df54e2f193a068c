"""Refused answers: who tried to let which call pass belongs to the call's history."""

from app.commands.tickets.evaluate import DecisionAttempt
from app.context import ServiceContext
from app.domain.errors import Conflict, DigestMismatch, Forbidden, Gone, Refusal
from app.domain.json_values import digest
from app.domain.principals import Principal
from app.domain.tickets.decisions import Decision
from app.storage.tickets import decisions

REFUSED_ID = "refused:"
"""What the ids of refused attempts begin with, and no other decision's does."""


_NOTED = (Forbidden, Conflict, Gone, DigestMismatch)
"""Refusals that say something about who tried what; a misspelt request isn't among them."""


async def note_rejection(
    ctx: ServiceContext, principal: Principal, attempted: DecisionAttempt, refusal: Refusal
) -> None:
    """Keep what was refused, apart from the transaction that has changed nothing."""
    ticket, request = attempted.ticket, attempted.request
    if ticket is None or request is None or not isinstance(refusal, _NOTED):
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
        await decisions.note_refusal(
            connection, principal.tenant, ticket.id, decision, refusal.code
        )
