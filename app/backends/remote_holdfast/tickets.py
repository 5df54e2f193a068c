"""Tickets of a run of another Holdfast and of the runs below it, read from a view of the run.

All of them are answered at the run itself.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from app.domain.agents.backend_results import RemoteQuestion
from app.domain.json_values import JsonObject
from app.domain.tickets.decisions import Action
from app.domain.tickets.tickets import ANSWERED_BY_PROGRAMS, TicketKind
from app.tools.schemas.subset import problem_of_schema


def questions_of(run: Mapping[str, Any]) -> Sequence[RemoteQuestion]:
    """The tickets that people must answer: those of the run, and those below it."""
    return [
        _question(ticket)
        for ticket in run["waiting"]["tickets"]
        if ticket["kind"] not in ANSWERED_BY_PROGRAMS
    ]


def _question(ticket: Mapping[str, Any]) -> RemoteQuestion:
    """`edit` is not offered, because the tool's schema is known at the remote only."""
    return RemoteQuestion(
        name=ticket["id"],
        message=ticket["message"],
        is_login=ticket["kind"] == TicketKind.AUTH.value,
        tool_name=ticket["tool_name"],
        arguments=ticket.get("arguments"),
        actions=frozenset(Action(each) for each in ticket["allowed_actions"]) - {Action.EDIT},
        response_schema=_checkable(ticket.get("response_schema")),
    )


def _checkable(schema: JsonObject | None) -> JsonObject | None:
    """The schema if answers can be checked against it here. The remote checks all answers itself."""
    return None if schema is None or problem_of_schema(schema) is not None else schema
