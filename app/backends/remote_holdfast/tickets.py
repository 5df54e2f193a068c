"""What a run of another Holdfast asks, and what runs below it do: read from a view of it, and whom to answer.

A ticket is answered at the run that has opened it. Of the runs below, the binding of the turn keeps which
that is, so whoever carries an answer over knows.
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
    """Whom an answer goes to: a run there, and its ticket."""

    run_id: str
    ticket_id: str


@dataclass(frozen=True, slots=True)
class RemoteTicket:
    question: RemoteQuestion
    owner: TicketOwner
    is_descendants: bool


def questions_of(run: Mapping[str, Any]) -> Sequence[RemoteTicket]:
    """What people have to answer before a waiting run gets on: its own tickets, and those below it."""
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


def owners_below(asked: Iterable[RemoteTicket]) -> dict[str, Any]:
    """What a binding keeps of them."""
    below = {
        each.question.name: [each.owner.run_id, each.owner.ticket_id]
        for each in asked
        if each.is_descendants
    }
    return {_BELOW: below} if below else {}


def owner_of(binding: JsonObject, question: str) -> TicketOwner:
    below = binding.get(_BELOW, {}).get(question)
    return TicketOwner(binding["run_id"], question) if below is None else TicketOwner(*below)


def without_owners(binding: JsonObject) -> JsonObject:
    return {key: value for key, value in binding.items() if key != _BELOW}


def _asked(ticket: Mapping[str, Any], run_id: str, name: str, *, is_below: bool) -> RemoteTicket:
    """Arguments are edited where the tool is known, so not here."""
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
