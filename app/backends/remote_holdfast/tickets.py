"""Tickets of a run of another Holdfast and of its children, read from a view of the run.

A ticket is answered at the run that has opened it. For tickets of children the turn's binding has that run.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.agents.backend_results import RemoteQuestion
from app.domain.json_values import JsonObject
from app.domain.tickets.decisions import Action
from app.domain.tickets.tickets import ANSWERED_BY_PROGRAMS, TicketKind
from app.tools.schemas.subset import problem_of_schema

_BELOW = "asked_below"


@dataclass(frozen=True, slots=True)
class TicketOwner:
    """Where an answer goes: a run at the remote and its ticket."""

    run_id: str
    ticket_id: str


@dataclass(frozen=True, slots=True)
class RemoteTicket:
    question: RemoteQuestion
    owner: TicketOwner
    is_descendants: bool


def questions_of(run: Mapping[str, Any]) -> Sequence[RemoteTicket]:
    """The tickets that people must answer: the run's own, and those of its children."""
    waiting = run["waiting"]
    own = [
        _asked(ticket, run["run_id"], ticket["ticket_id"], is_below=False)
        for ticket in waiting["tickets"]
        if ticket["kind"] not in ANSWERED_BY_PROGRAMS
    ]
    below = [
        _asked(ticket, ticket["run_id"], f"{ticket['run_id']}:{ticket['ticket_id']}", is_below=True)
        for ticket in waiting.get("tickets_of_children", ())
    ]
    return [*own, *below]


def owners_below(tickets: Iterable[RemoteTicket]) -> dict[str, Any]:
    """The tickets as the binding has them."""
    below = {
        each.question.name: [each.owner.run_id, each.owner.ticket_id]
        for each in tickets
        if each.is_descendants
    }
    return {_BELOW: below} if below else {}


def owner_of(binding: JsonObject, question: str) -> TicketOwner:
    below = binding.get(_BELOW, {}).get(question)
    return TicketOwner(binding["run_id"], question) if below is None else TicketOwner(*below)


def without_owners(binding: JsonObject) -> JsonObject:
    return {key: value for key, value in binding.items() if key != _BELOW}


def _asked(ticket: Mapping[str, Any], run_id: str, name: str, *, is_below: bool) -> RemoteTicket:
    """`edit` is not offered, because the tool's schema is known at the remote only."""
    actions = frozenset(Action(each) for each in ticket["allowed_actions"]) - {Action.EDIT}
    question = RemoteQuestion(
        name=name,
        message=ticket["message"],
        is_login=ticket["kind"] == TicketKind.AUTH.value,
        tool_name=ticket["tool_name"],
        arguments=ticket.get("arguments"),
        actions=actions,
        response_schema=_usable(ticket.get("response_schema")),
    )
    return RemoteTicket(question, TicketOwner(run_id, ticket["ticket_id"]), is_below)


def _usable(schema: JsonObject | None) -> JsonObject | None:
    """What answers are checked against here already; what can't be used here, the remote itself checks."""
    return None if schema is None or problem_of_schema(schema) is not None else schema
