"""Decisions: a human's answers to tickets, each with an id of its own."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from app.domain.ids import MessageId, TicketKey
from app.domain.json_values import Json, JsonObject, digest


class Action(StrEnum):
    APPROVE = "approve"
    EDIT = "edit"
    RESPOND = "respond"
    REJECT = "reject"
    CANCEL = "cancel"


class DecisionEffect(StrEnum):
    """What became of an answer: it counted, it counts with others, or it was turned away."""

    DECIDED = "decided"
    VOTED = "voted"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionAnswer:
    """What one decision says, before anybody knows whether it counts."""

    action: Action
    arguments: JsonObject | None = None
    result: Json = None
    reason: str | None = None

    @property
    def payload(self) -> Json:
        return self.arguments if self.action is Action.EDIT else self.result

    @property
    def allows_call(self) -> bool:
        """Whether the model gets what it asked for, or something in its place: that may take several
        people. One is enough to say no."""
        return self.action in (Action.APPROVE, Action.EDIT, Action.RESPOND)

    def agrees_with(self, other: "DecisionAnswer") -> bool:
        """Whatever reasons were given."""
        return (self.action, self.payload) == (other.action, other.payload)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An answer that counted: who gave it, when, and under which id."""

    decision_id: str
    answer: DecisionAnswer
    subject: str
    at: datetime


def decision_to_json(decision: Decision) -> dict[str, Any]:
    """A decision as a refusal shows it to somebody who came too late."""
    return {
        "decision_id": decision.decision_id,
        "action": decision.answer.action.value,
        "decided_by": decision.subject,
        "decided_at": decision.at,
    }


@dataclass(frozen=True, slots=True)
class StoredAttempt:
    """An answer to a ticket with what became of it; `refusal` is the code of a refused one."""

    ticket: TicketKey
    decision: Decision
    effect: DecisionEffect
    refusal: str | None


def derived_decision_id(ticket_key: str, answer: DecisionAnswer, subject: str) -> str:
    """The same answer by the same person to the same ticket has the same id, however often sent."""
    return digest([ticket_key, answer.action.value, answer.payload, subject])


def decision_id_of_message(message_id: MessageId) -> str:
    """The id of a decision that a message stands for: the message itself enters the log."""
    return f"message:{message_id}"


EXPIRED = "Expired: nobody answered in time"
"""What the model reads when nobody did. That isn't a denial: it may ask again."""


def denial(answer: DecisionAnswer) -> str:
    """What the model reads after a rejection."""
    return f"Denied: {answer.reason or 'a person rejected this call'}"
