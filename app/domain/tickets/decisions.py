"""Decisions: people's answers to tickets, each with its own id."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from app.domain.ids import MessageId, TicketKey
from app.domain.json_values import Json, JsonObject, digest


class Action(StrEnum):
    APPROVE = "approve"
    EDIT = "edit"
    RESPOND = "respond"
    REJECT = "reject"
    CANCEL = "cancel"


class DecisionEffect(StrEnum):
    """The effect of an answer: it decided the ticket, counts as a vote, or was refused."""

    DECIDED = "decided"
    VOTED = "voted"
    REFUSED = "refused"


class DecisionAnswer(Struct, frozen=True, kw_only=True):
    """The content of an answer, before it is checked."""

    action: Action
    arguments: JsonObject | None = None
    result: Json = None
    reason: str | None = None

    @property
    def payload(self) -> Json:
        return self.arguments if self.action is Action.EDIT else self.result

    @property
    def allows_call(self) -> bool:
        """Whether the answer gives the call a result. Such answers may need a quorum; a rejection never
        does."""
        return self.action in (Action.APPROVE, Action.EDIT, Action.RESPOND)

    def agrees_with(self, other: "DecisionAnswer") -> bool:
        """Whether both have the same content, apart from their reasons."""
        return (self.action, self.payload) == (other.action, other.payload)


class Decision(Struct, frozen=True, kw_only=True):
    """An answer, with its id, the person who gave it and the time."""

    decision_id: str
    answer: DecisionAnswer
    subject: str
    at: datetime


def decision_to_json(decision: Decision) -> dict[str, Any]:
    """The earlier decision, as the refusal of a later one shows it."""
    return {
        "id": decision.decision_id,
        "action": decision.answer.action.value,
        "decided_by": decision.subject,
        "decided_at": decision.at,
    }


class StoredAttempt(Struct, frozen=True):
    """A stored answer to a ticket, with its effect; `refusal` is the code of a refused one."""

    ticket: TicketKey
    decision: Decision
    effect: DecisionEffect
    refusal: str | None


def derived_decision_id(ticket_key: str, answer: DecisionAnswer, subject: str) -> str:
    """The same id for each repetition of the same answer by the same person to the same ticket."""
    return digest([ticket_key, answer.action.value, answer.payload, subject])


def decision_id_of_message(message_id: MessageId) -> str:
    """The id of a decision that a message makes; the message itself enters the log."""
    return f"message:{message_id}"


BETWEEN_MESSAGES = "\n\n"
"""Between the texts of several messages that answer one ticket."""

EXPIRED = "Expired: no decision came in time"
"""What the model reads if a ticket expires. That isn't a denial: it may call the tool again."""


def denial(answer: DecisionAnswer) -> str:
    """What the model reads after a rejection."""
    return f"Denied: {answer.reason or 'a person rejected this call'}"
