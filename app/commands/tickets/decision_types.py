"""A requested decision, and its result."""

from msgspec import Struct

from app.domain.events.ticket_events import TicketDecided
from app.domain.rules.remembered import Remember, RememberedRule
from app.domain.tickets.decisions import Decision, DecisionAnswer
from app.domain.tickets.tickets import Ticket


class DecisionRequest(Struct, frozen=True, kw_only=True):
    """One answer of a batch. `ticket` is a ticket's id, or the id of its call."""

    ticket: str
    answer: DecisionAnswer
    decision_id: str | None
    args_digest: str | None
    remember: Remember | None = None


class DecisionResult(Struct, frozen=True):
    ticket: Ticket
    decision: Decision
    is_duplicate: bool = False
    votes_missing: int = 0
    """People who still have to give the same answer before it counts."""
    rule: RememberedRule | None = None
    """The rule that the answer adds for later calls."""

    @property
    def counts(self) -> bool:
        return self.votes_missing == 0


def ticket_decided(ticket: Ticket, decision: Decision) -> TicketDecided:
    """The event of an answer that counts."""
    return TicketDecided(
        ticket_id=ticket.id,
        decision_id=decision.decision_id,
        action=decision.answer.action.value,
        decided_by=decision.subject,
        reason=decision.answer.reason,
    )
