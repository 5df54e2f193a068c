"""Enum columns of the database accept exactly the values of the domain."""

from enum import StrEnum

import pytest
from sqlalchemy import CheckConstraint, Table

from app.domain.children.background_tasks import TaskStatus
from app.domain.runs.runs import RunStatus, WaitingReason
from app.domain.threads.inputs import InputStatus
from app.domain.threads.messages import Role, Visibility
from app.domain.tickets.decisions import Action
from app.domain.tickets.tickets import TicketKind, TicketStatus
from app.domain.tools.tool_calls import CallStatus, Effect, ResumeMode
from app.storage import tables


@pytest.mark.parametrize(
    "table, column, words",
    [
        (tables.runs, "status", RunStatus),
        (tables.runs, "waiting_reason", WaitingReason),
        (tables.messages, "role", Role),
        (tables.messages, "visibility", Visibility),
        (tables.inputs, "status", InputStatus),
        (tables.tool_calls, "status", CallStatus),
        (tables.tool_calls, "effect", Effect),
        (tables.tasks, "status", TaskStatus),
        (tables.tasks, "effect", Effect),
        (tables.tickets, "status", TicketStatus),
        (tables.tickets, "kind", TicketKind),
        (tables.tickets, "resume_mode", ResumeMode),
        (tables.tickets, "tool_effect", Effect),
        (tables.decisions, "action", Action),
    ],
)
def test_a_column_accepts_exactly_the_values_of_its_enum(
    table: Table, column: str, words: type[StrEnum]
) -> None:
    [check] = [
        str(constraint.sqltext)
        for constraint in table.constraints
        if isinstance(constraint, CheckConstraint)
        and str(constraint.sqltext).startswith(f"{column} IN (")
    ]
    assert check == f"{column} IN ({', '.join(repr(str(word)) for word in words)})"
