"""Statuses: what may follow what, and that the database knows the same words."""

from collections.abc import Mapping
from enum import StrEnum

import pytest
from sqlalchemy import CheckConstraint, Table

from app.domain.children.background_tasks import TASK_TRANSITIONS, TaskStatus
from app.domain.runs.runs import RUN_TRANSITIONS, RunStatus, WaitingReason
from app.domain.threads.inputs import INPUT_TRANSITIONS, InputStatus
from app.domain.threads.messages import Role, Visibility
from app.domain.tickets.decisions import Action
from app.domain.tickets.tickets import TICKET_TRANSITIONS, TicketKind, TicketStatus
from app.domain.tools.tool_calls import CALL_TRANSITIONS, CallStatus, Effect, ResumeMode
from app.storage import tables

CREATED, RUNNING, WAITING, DONE = RunStatus


@pytest.mark.parametrize(
    "before, allowed",
    [
        (CREATED, {CREATED, RUNNING, DONE}),
        (RUNNING, {RUNNING, WAITING, DONE}),
        (WAITING, {WAITING, RUNNING, DONE}),
        (DONE, {DONE}),
    ],
)
def test_a_run_moves_as_its_users_are_told(before: RunStatus, allowed: set[RunStatus]) -> None:
    assert RUN_TRANSITIONS[before] == allowed


def test_a_ticket_leaves_open_once_and_stays_there() -> None:
    assert TICKET_TRANSITIONS[TicketStatus.OPEN] == set(TicketStatus)
    for status in set(TicketStatus) - {TicketStatus.OPEN}:
        assert TICKET_TRANSITIONS[status] == {status}


def test_an_input_is_taken_or_retracted_once() -> None:
    assert INPUT_TRANSITIONS[InputStatus.PENDING] == set(InputStatus)
    for status in (InputStatus.CONSUMED, InputStatus.RETRACTED):
        assert INPUT_TRANSITIONS[status] == {status}


def test_a_task_ends_once() -> None:
    assert TASK_TRANSITIONS[TaskStatus.RUNNING] == set(TaskStatus)
    for status in TaskStatus:
        if status.is_final:
            assert TASK_TRANSITIONS[status] == {status}


def test_a_call_that_has_its_result_never_moves_again() -> None:
    for status in CallStatus:
        if status.is_final:
            assert CALL_TRANSITIONS[status] == {status}


def test_a_call_that_was_begun_is_never_pending_again() -> None:
    for status in CallStatus:
        if status is not CallStatus.PENDING:
            assert CallStatus.PENDING not in CALL_TRANSITIONS[status]


@pytest.mark.parametrize(
    "transitions, statuses",
    [
        (RUN_TRANSITIONS, RunStatus),
        (TICKET_TRANSITIONS, TicketStatus),
        (INPUT_TRANSITIONS, InputStatus),
        (CALL_TRANSITIONS, CallStatus),
        (TASK_TRANSITIONS, TaskStatus),
    ],
)
def test_every_status_has_its_row_and_may_stay(
    transitions: Mapping[StrEnum, frozenset[StrEnum]], statuses: type[StrEnum]
) -> None:
    assert set(transitions) == set(statuses)
    assert all(status in allowed for status, allowed in transitions.items())


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
        (tables.decisions, "action", Action),
    ],
)
def test_a_column_takes_the_domains_words_and_no_others(
    table: Table, column: str, words: type[StrEnum]
) -> None:
    [check] = [
        str(constraint.sqltext)
        for constraint in table.constraints
        if isinstance(constraint, CheckConstraint)
        and str(constraint.sqltext).startswith(f"{column} IN (")
    ]
    assert check == f"{column} IN ({', '.join(repr(str(word)) for word in words)})"
