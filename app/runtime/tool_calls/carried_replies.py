"""The replies to a call's questions whose tickets carry what the tool needs to continue."""

from app.domain.json_values import JsonObject
from app.domain.tickets.decisions import Action
from app.domain.tickets.tickets import Ticket, TicketStatus
from app.runtime.ports.call_waits import CarriedReply
from app.runtime.tool_calls.call_events import CallTickets

_OVER = (TicketStatus.DECIDED, TicketStatus.EXPIRED)


class TicketReplies:
    """The replies to the questions of one call."""

    def __init__(self, tickets: CallTickets) -> None:
        self._tickets = tickets

    async def replies(self) -> list[CarriedReply]:
        return [
            _reply(ticket, ticket.carry)
            for ticket in await self._tickets.all()
            if ticket.carry is not None and ticket.status in _OVER
        ]


def _reply(ticket: Ticket, carry: JsonObject) -> CarriedReply:
    if ticket.decision is None:
        return CarriedReply(carry=carry, action="cancel", result=None)
    answer = ticket.decision.answer
    if answer.action is Action.REJECT:
        return CarriedReply(carry=carry, action="decline", result=None)
    return CarriedReply(carry=carry, action="accept", result=answer.result)
