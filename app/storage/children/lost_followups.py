"""Errands about children that should have been done and weren't, as the rows tell; for the sweeper.

A child that was never started, an end that its parent doesn't know, a message that has stayed with its
task, a child that goes on although nobody waits for it, one that is there still and wasn't to be kept.
"""

from datetime import timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    Text,
    Uuid,
    and_,
    case,
    cast,
    exists,
    func,
    literal,
    or_,
    select,
    text,
)

from app.domain.children.background_tasks import TaskStatus
from app.domain.children.child_runs import ticket_name_of_child
from app.domain.children.followups import ChildFollowup, FollowupKind
from app.domain.ids import RunId, Tenant
from app.domain.runs.runs import RunStatus
from app.storage.children.child_runs import IS_OPEN_CHILD
from app.storage.postgres.database import Connection
from app.storage.queue.failed_followups import is_put_off
from app.storage.tables import runs, tasks, tickets

_AN_ID = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"

_child, _parent = runs.alias("child"), runs.alias("parent")
_is_done = _child.c.status == RunStatus.DONE.value
_task_is_open = tasks.c.status == TaskStatus.RUNNING.value


async def of_children(connection: Connection, *, grace: float, limit: int) -> list[ChildFollowup]:
    """Those that were due `grace` ago, but for what has failed and is tried again later, or never."""
    long_ago = func.now() - timedelta(seconds=grace)
    due = [statement(long_ago) for statement in (_behind_tickets, _of_tasks, _unwanted, _to_forget)]
    return [
        ChildFollowup(
            kind=FollowupKind(row.kind),
            tenant=Tenant(row.tenant),
            parent_run_id=RunId(row.parent),
            child_run_id=RunId(row.child),
        )
        for statement in due
        for row in await connection.execute(statement.limit(limit))
    ]


def _due(long_ago: Any, kind: Any, tenant: Any, parent: Any, child: Any) -> Select[Any]:
    return select(
        kind.label("kind"), tenant.label("tenant"), parent.label("parent"), child.label("child")
    ).where(~is_put_off(kind, tenant, child, long_ago))


def _behind_tickets(long_ago: ColumnElement[Any]) -> Select[Any]:
    named = tickets.c.evidence["run_id"].astext
    # One that isn't an id would fail the statement, and with it all errands.
    awaited = case((named.regexp_match(_AN_ID), cast(named, Uuid(as_uuid=False))))
    kind = case(
        (_child.c.id.is_(None), FollowupKind.START.value), else_=FollowupKind.REPORT_TO_PARENT.value
    )
    return (
        _due(long_ago, kind, tickets.c.tenant, tickets.c.run_id, awaited)
        .join_from(
            tickets,
            _child,
            and_(_child.c.tenant == tickets.c.tenant, _child.c.id == awaited),
            isouter=True,
        )
        .where(
            IS_OPEN_CHILD,
            awaited.is_not(None),
            tickets.c.updated_at < long_ago,
            or_(_child.c.id.is_(None), and_(_is_done, _child.c.updated_at < long_ago)),
        )
    )


def _of_tasks(long_ago: ColumnElement[Any]) -> Select[Any]:
    """A task that has begun and has no run any more is told of that like of an end."""
    never_begun = tasks.c.attempt == 0
    is_over = or_(_child.c.id.is_(None), and_(_is_done, _child.c.updated_at < long_ago))
    has_mail = and_(
        tasks.c.inbox_read < func.jsonb_array_length(tasks.c.inbox),
        _child.c.cancel_requested_at.is_(None),
    )
    kind = case(
        (never_begun, FollowupKind.START.value),
        (is_over, FollowupKind.REPORT_TO_PARENT.value),
        else_=FollowupKind.FORWARD_MESSAGES.value,
    )
    return (
        _due(long_ago, kind, tasks.c.tenant, tasks.c.run_id, tasks.c.child_run_id)
        .join_from(
            tasks,
            _child,
            and_(_child.c.tenant == tasks.c.tenant, _child.c.id == tasks.c.child_run_id),
            isouter=True,
        )
        .where(
            _task_is_open,
            tasks.c.child_run_id.is_not(None),
            tasks.c.updated_at < long_ago,
            or_(never_begun, is_over, and_(~_is_done, has_mail)),
        )
    )


def _unwanted(long_ago: ColumnElement[Any]) -> Select[Any]:
    """Its parent has ended, or its task: unless it still is the one's task it goes on for nobody."""
    its_task = and_(tasks.c.tenant == _child.c.tenant, tasks.c.child_run_id == _child.c.id)
    is_a_task = exists().where(its_task, _task_is_open)
    task_is_over = exists().where(its_task, ~_task_is_open, tasks.c.updated_at < long_ago)
    parent_is_over = and_(
        _parent.c.status == RunStatus.DONE.value, _parent.c.updated_at < long_ago, ~is_a_task
    )
    kind = literal(FollowupKind.CANCEL.value)
    return (
        _due(long_ago, kind, _child.c.tenant, _child.c.parent_run_id, _child.c.id)
        .join_from(
            _child,
            _parent,
            and_(_parent.c.tenant == _child.c.tenant, _parent.c.id == _child.c.parent_run_id),
        )
        .where(
            _child.c.parent_run_id.is_not(None),
            ~_is_done,
            _child.c.cancel_requested_at.is_(None),
            or_(parent_is_over, task_is_over),
        )
    )


def _to_forget(long_ago: ColumnElement[Any]) -> Select[Any]:
    """It has ended, and whoever waited for it has its answer or wants none."""
    # In the words of the index, whose values mustn't be parameters.
    is_over = text(
        "child.status = 'done' AND child.parent_run_id IS NOT NULL"
        " AND (child.request ->> 'keep') = 'false'"
    )
    name = ticket_name_of_child(RunId("")) + cast(_child.c.id, Text)
    is_awaited = exists().where(
        tickets.c.tenant == _child.c.tenant,
        tickets.c.run_id == _child.c.parent_run_id,
        tickets.c.ticket_id == name,
        IS_OPEN_CHILD,
    )
    is_a_task = exists().where(
        tasks.c.tenant == _child.c.tenant, tasks.c.child_run_id == _child.c.id, _task_is_open
    )
    kind = literal(FollowupKind.FORGET.value)
    return _due(long_ago, kind, _child.c.tenant, _child.c.parent_run_id, _child.c.id).where(
        is_over, _child.c.updated_at < long_ago, ~is_awaited, ~is_a_task
    )
