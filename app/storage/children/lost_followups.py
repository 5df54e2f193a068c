"""Finds follow-ups about children that are due but whose job was lost; for the sweeper.

For a child these are:
to start it, to report its end, to forward messages, and to show its tickets on its parent's stream.
Also to cancel a child that its parent no longer needs, and to delete a child that isn't to be kept.
"""

from datetime import timedelta
from functools import cache
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
from app.domain.tickets.tickets import ANSWERED_BY_PROGRAMS, TicketStatus
from app.storage.children.child_runs import IS_OPEN_CHILD
from app.storage.postgres.database import Connection
from app.storage.postgres.statements import Prepared, prepared
from app.storage.queue.failed_followups import is_put_off
from app.storage.runs.unattended import GRACE, LIMIT
from app.storage.tables import child_tickets, runs, tasks, tickets

_UUID_PATTERN = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"

_child, _parent = runs.alias("child"), runs.alias("parent")
_asked, _shown = tickets.alias("asked"), child_tickets.alias("shown")
_SHOW = literal(FollowupKind.SHOW_TICKETS.value)
_is_done = _child.c.status == RunStatus.DONE.value
_task_is_open = tasks.c.status == TaskStatus.RUNNING.value


async def of_children(connection: Connection, *, grace: float, limit: int) -> list[ChildFollowup]:
    """Follow-ups that were due `grace` ago, without those that failed and wait for a retry or were given up."""
    values = {"grace": timedelta(seconds=grace), "limit": limit}
    return [
        ChildFollowup(
            kind=FollowupKind(row.kind),
            tenant=Tenant(row.tenant),
            parent_run_id=RunId(row.parent),
            child_run_id=RunId(row.child),
        )
        for statement in _statements()
        for row in await connection.execute(statement, values)
    ]


@cache
def _statements() -> list[Prepared]:
    """All searches, which a sweep does one after the other."""
    searches = (
        _for_tickets,
        _for_tasks,
        _to_show_of_tickets,
        _to_show_of_tasks,
        _to_show_closed,
        _to_cancel,
        _to_delete,
    )
    due_before = func.now() - GRACE
    return [prepared(search(due_before).limit(LIMIT)) for search in searches]


def _due(due_before: Any, kind: Any, tenant: Any, parent: Any, child: Any) -> Select[Any]:
    return select(
        kind.label("kind"), tenant.label("tenant"), parent.label("parent"), child.label("child")
    ).where(~is_put_off(kind, tenant, child, due_before))


def _for_tickets(due_before: ColumnElement[Any]) -> Select[Any]:
    """Children of open tickets that were never started, or whose end wasn't reported."""
    run_id = tickets.c.evidence["run_id"].astext
    # A value that isn't an id would make the cast, and the whole statement, fail.
    awaited = case((run_id.regexp_match(_UUID_PATTERN), cast(run_id, Uuid(as_uuid=False))))
    kind = case(
        (_child.c.id.is_(None), FollowupKind.START.value), else_=FollowupKind.REPORT_TO_PARENT.value
    )
    return (
        _due(due_before, kind, tickets.c.tenant, tickets.c.run_id, awaited)
        .join_from(
            tickets,
            _child,
            and_(_child.c.tenant == tickets.c.tenant, _child.c.id == awaited),
            isouter=True,
        )
        .where(
            IS_OPEN_CHILD,
            awaited.is_not(None),
            tickets.c.updated_at < due_before,
            or_(_child.c.id.is_(None), and_(_is_done, _child.c.updated_at < due_before)),
        )
    )


def _for_tasks(due_before: ColumnElement[Any]) -> Select[Any]:
    """Children of open tasks to start, to report or to forward messages to.

    A started task whose child run was deleted gets a report too.
    """
    is_unstarted = tasks.c.attempt == 0
    is_finished = or_(_child.c.id.is_(None), and_(_is_done, _child.c.updated_at < due_before))
    has_unread_messages = and_(
        tasks.c.inbox_read < func.jsonb_array_length(tasks.c.inbox),
        _child.c.cancel_requested_at.is_(None),
    )
    kind = case(
        (is_unstarted, FollowupKind.START.value),
        (is_finished, FollowupKind.REPORT_TO_PARENT.value),
        else_=FollowupKind.FORWARD_MESSAGES.value,
    )
    return (
        _due(due_before, kind, tasks.c.tenant, tasks.c.run_id, tasks.c.child_run_id)
        .join_from(
            tasks,
            _child,
            and_(_child.c.tenant == tasks.c.tenant, _child.c.id == tasks.c.child_run_id),
            isouter=True,
        )
        .where(
            _task_is_open,
            tasks.c.child_run_id.is_not(None),
            tasks.c.updated_at < due_before,
            or_(is_unstarted, is_finished, and_(~_is_done, has_unread_messages)),
        )
    )


def _has_unshown(due_before: ColumnElement[Any]) -> ColumnElement[bool]:
    """Whether an open ticket of the child, or one that its own stream shows, isn't on the parent's stream."""
    at_parent = child_tickets.alias("at_parent")
    is_unshown = and_(
        _asked.c.tenant == _child.c.tenant,
        _asked.c.status == TicketStatus.OPEN.value,
        ~exists()
        .where(
            at_parent.c.tenant == _asked.c.tenant,
            at_parent.c.run_id == _child.c.parent_run_id,
            at_parent.c.ticket == _asked.c.id,
        )
        .correlate(_asked, _child),
    )
    of_child = exists().where(
        _asked.c.run_id == _child.c.id,
        _asked.c.kind.not_in(ANSWERED_BY_PROGRAMS),
        _asked.c.updated_at < due_before,
        is_unshown,
    )
    below_child = exists().where(
        _shown.c.tenant == _child.c.tenant,
        _shown.c.run_id == _child.c.id,
        _shown.c.status == TicketStatus.OPEN.value,
        _shown.c.updated_at < due_before,
        _asked.c.id == _shown.c.ticket,
        is_unshown,
    )
    return or_(of_child, below_child)


def _to_show_of_tickets(due_before: ColumnElement[Any]) -> Select[Any]:
    """Children of open tickets that ask, or have children that ask, unnoticed by the parent's stream."""
    run_id = tickets.c.evidence["run_id"].astext
    awaited = case((run_id.regexp_match(_UUID_PATTERN), cast(run_id, Uuid(as_uuid=False))))
    return (
        _due(due_before, _SHOW, tickets.c.tenant, tickets.c.run_id, _child.c.id)
        .join_from(
            tickets, _child, and_(_child.c.tenant == tickets.c.tenant, _child.c.id == awaited)
        )
        .where(IS_OPEN_CHILD, ~_is_done, _has_unshown(due_before))
    )


def _to_show_of_tasks(due_before: ColumnElement[Any]) -> Select[Any]:
    """The same of the children of open tasks whose run isn't done."""
    return (
        _due(due_before, _SHOW, tasks.c.tenant, tasks.c.run_id, _child.c.id)
        .join_from(
            tasks,
            _child,
            and_(_child.c.tenant == tasks.c.tenant, _child.c.id == tasks.c.child_run_id),
        )
        .join(_parent, and_(_parent.c.tenant == tasks.c.tenant, _parent.c.id == tasks.c.run_id))
        .where(
            _task_is_open,
            ~_is_done,
            _parent.c.status != RunStatus.DONE.value,
            _has_unshown(due_before),
        )
    )


def _to_show_closed(due_before: ColumnElement[Any]) -> Select[Any]:
    """Streams that show a ticket as open although it was closed, or although the child has ended."""
    was_closed = and_(_asked.c.status != TicketStatus.OPEN.value, _asked.c.updated_at < due_before)
    child_ended = and_(_is_done, _child.c.updated_at < due_before)
    return (
        _due(due_before, _SHOW, _shown.c.tenant, _shown.c.run_id, _shown.c.via_run_id)
        .distinct()
        .join_from(
            _shown,
            _asked,
            and_(_asked.c.tenant == _shown.c.tenant, _asked.c.id == _shown.c.ticket),
        )
        .join(
            _child,
            and_(_child.c.tenant == _shown.c.tenant, _child.c.id == _shown.c.via_run_id),
            isouter=True,
        )
        .where(_shown.c.status == TicketStatus.OPEN.value, or_(was_closed, child_ended))
    )


def _to_cancel(due_before: ColumnElement[Any]) -> Select[Any]:
    """Children whose parent or task is done, and that no open task refers to."""
    its_task = and_(tasks.c.tenant == _child.c.tenant, tasks.c.child_run_id == _child.c.id)
    has_open_task = exists().where(its_task, _task_is_open)
    task_is_done = exists().where(its_task, ~_task_is_open, tasks.c.updated_at < due_before)
    parent_is_done = and_(
        _parent.c.status == RunStatus.DONE.value, _parent.c.updated_at < due_before, ~has_open_task
    )
    kind = literal(FollowupKind.CANCEL.value)
    return (
        _due(due_before, kind, _child.c.tenant, _child.c.parent_run_id, _child.c.id)
        .join_from(
            _child,
            _parent,
            and_(_parent.c.tenant == _child.c.tenant, _parent.c.id == _child.c.parent_run_id),
        )
        .where(
            # Written as in the index `runs_unfinished_children`.
            text("child.parent_run_id IS NOT NULL AND child.status <> 'done'"),
            _child.c.cancel_requested_at.is_(None),
            or_(parent_is_done, task_is_done),
        )
    )


def _to_delete(due_before: ColumnElement[Any]) -> Select[Any]:
    """Finished children that aren't to be kept, and that no open ticket or task refers to."""
    # Written as in the index `runs_to_delete`: with parameters, Postgres wouldn't use it.
    is_finished = text(
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
    has_open_task = exists().where(
        tasks.c.tenant == _child.c.tenant, tasks.c.child_run_id == _child.c.id, _task_is_open
    )
    kind = literal(FollowupKind.DELETE.value)
    return _due(due_before, kind, _child.c.tenant, _child.c.parent_run_id, _child.c.id).where(
        is_finished, _child.c.updated_at < due_before, ~is_awaited, ~has_open_task
    )
