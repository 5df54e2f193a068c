"""What a run of another Holdfast asks, and what runs below it do: read from a view of it, and whom to answer.

A ticket is answered at the run that has opened it. Of the runs below, the binding of the turn keeps which
that is, so whoever carries an answer over knows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.backends import RemoteQuestion
from app.domain.decisions import Action
from app.domain.json_values import JsonObject
from app.domain.tickets import ANSWERED_BY_PROGRAMS, TicketKind
from app.tools.schema_subset import problem_of_schema

_BELOW = "asked_below"


@dataclass(frozen=True, slots=True)
class Asker:
    """Whom an answer goes to: a run there, and its ticket."""

    run_id: str
    ticket_id: str


@dataclass(frozen=True, slots=True)
class Asked:
    question: RemoteQuestion
    asker: Asker
    is_below: bool


def questions_of(run: Mapping[str, Any]) -> Sequence[Asked]:
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


def askers_below(asked: Iterable[Asked]) -> dict[str, Any]:
    """What a binding keeps of them."""
    below = {
        each.question.name: [each.asker.run_id, each.asker.ticket_id]
        for each in asked
        if each.is_below
    }
    return {_BELOW: below} if below else {}


def asker_of(binding: JsonObject, question: str) -> Asker:
    below = binding.get(_BELOW, {}).get(question)
    return Asker(binding["run_id"], question) if below is None else Asker(*below)


def without_askers(binding: JsonObject) -> JsonObject:
    return {key: value for key, value in binding.items() if key != _BELOW}


def _asked(ticket: Mapping[str, Any], run_id: str, name: str, *, is_below: bool) -> Asked:
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
    return Asked(question, Asker(run_id, ticket["ticket_id"]), is_below)


def _usable(schema: JsonObject | None) -> JsonObject | None:
    """What answers are checked against here already; what can't be used here, the remote itself checks."""
    return None if schema is None or problem_of_schema(schema) is not None else schema
