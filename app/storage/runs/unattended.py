"""Runs that a worker should execute, but that have no live worker and no delivery. The sweeper enqueues them."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Integer,
    Interval,
    Text,
    and_,
    any_,
    bindparam,
    exists,
    func,
    or_,
    select,
    true,
)

from app.domain.ids import AgentVersion, RunId, Tenant, ThreadId
from app.domain.runs.runs import RunStatus, WaitingReason
from app.domain.tickets.tickets import TicketKind, TicketStatus
from app.storage.postgres.database import Connection
from app.storage.postgres.statements import Prepared, prepared
from app.storage.runs.pauses import CLAIMABLE, NOT_PAUSED
from app.storage.runs.runs import RunKey
from app.storage.tables import runs, tickets, workers

_key_columns = (runs.c.tenant, runs.c.thread_id, runs.c.id, runs.c.attempt)

GRACE = bindparam("grace", type_=Interval())
LIMIT = bindparam("limit", type_=Integer())
_HEARTBEAT_TIMEOUT = bindparam("heartbeat_timeout", type_=Interval())
_IS_PAST_GRACE: ColumnElement[bool] = runs.c.updated_at < func.now() - GRACE

_IS_WITHOUT_OWNER: ColumnElement[bool] = and_(
    runs.c.admitted,
    runs.c.status.in_((RunStatus.CREATED.value, RunStatus.RUNNING.value)),
    or_(
        runs.c.owner.is_(None) & _IS_PAST_GRACE,
        runs.c.owner.is_not(None)
        & ~exists().where(
            workers.c.id == runs.c.owner,
            workers.c.heartbeat_at > func.now() - _HEARTBEAT_TIMEOUT,
        ),
    ),
)
"""An admitted run that is not suspended, and that no live worker owns."""


def _search(*conditions: ColumnElement[bool], order: Any = runs.c.updated_at) -> Prepared:
    return prepared(select(*_key_columns).where(*conditions).order_by(order).limit(LIMIT))


async def _found(
    connection: Connection, search: Prepared, limit: int, **values: float
) -> list[RunKey]:
    """The runs that a search finds. `values` are times in seconds."""
    times = {name: timedelta(seconds=seconds) for name, seconds in values.items()}
    return _keys(await connection.execute(search, {"limit": limit, **times}))


def _keys(rows: Iterable[Any]) -> list[RunKey]:
    return [
        RunKey(Tenant(row.tenant), ThreadId(row.thread_id), RunId(row.id), row.attempt)
        for row in rows
    ]


_SWEEP_LOCK = 0x53776565


async def may_sweep(connection: Connection) -> bool:
    """Try to take the sweep lock until commit, so that one process sweeps at a time."""
    statement = select(func.pg_try_advisory_xact_lock(_SWEEP_LOCK))
    return bool((await connection.execute(statement)).scalar_one())


_WITHOUT_OWNER = _search(_IS_WITHOUT_OWNER, CLAIMABLE)


async def without_owner(
    connection: Connection, *, heartbeat_timeout: float, grace: float, limit: int
) -> list[RunKey]:
    """Runs of all tenants that a worker should execute and that have no live owner; for the sweeper.

    A run without owner that changed within `grace` is left out: its delivery is still queued.
    """
    times = {"heartbeat_timeout": heartbeat_timeout, "grace": grace}
    return await _found(connection, _WITHOUT_OWNER, limit, **times)


_HAS_CANCEL_REQUEST: ColumnElement[bool] = runs.c.cancel_requested_at.is_not(None)
_CANCELLED = (
    _search(_IS_WITHOUT_OWNER, _HAS_CANCEL_REQUEST),
    _search(runs.c.status == RunStatus.WAITING.value, _IS_PAST_GRACE, _HAS_CANCEL_REQUEST),
)


async def with_cancel_request(
    connection: Connection, *, heartbeat_timeout: float, grace: float, limit: int
) -> list[RunKey]:
    """Runs with a cancel request that no live worker executes, of all tenants; for the sweeper.

    A waiting run has such a request if it came right before the suspension. Its delivery was committed with
    the suspension, and counts as lost after `grace`.
    """
    times = {"heartbeat_timeout": heartbeat_timeout, "grace": grace}
    return [
        key for search in _CANCELLED for key in await _found(connection, search, limit, **times)
    ]


_limit_tickets = tickets.alias("limit_tickets")
_HAS_OPEN_LIMIT = exists().where(
    _limit_tickets.c.tenant == runs.c.tenant,
    _limit_tickets.c.run_id == runs.c.id,
    _limit_tickets.c.kind == TicketKind.LIMIT.value,
    _limit_tickets.c.status == TicketStatus.OPEN.value,
)
_unapplied = (
    select(tickets.c.tenant, tickets.c.run_id, tickets.c.updated_at)
    .where(
        tickets.c.status.in_(("decided", "expired")),
        tickets.c.applied_at.is_(None),
        tickets.c.updated_at < func.now() - GRACE,
    )
    .subquery("unapplied")
)
# With an offset, Postgres reads each ticket's run by its key, instead of all runs that wait.
_run_of_unapplied = (
    select(*_key_columns)
    .where(
        runs.c.tenant == _unapplied.c.tenant,
        runs.c.id == _unapplied.c.run_id,
        runs.c.status == RunStatus.WAITING.value,
        runs.c.waiting_reason.not_in(
            (WaitingReason.AGENT_VERSION_UNAVAILABLE.value, WaitingReason.RATE_LIMIT.value)
        ),
        NOT_PAUSED,
        ~_HAS_OPEN_LIMIT,
    )
    .offset(0)
    .lateral("run")
)
_WITH_UNNOTICED_DECISION = prepared(
    select(*_run_of_unapplied.c)
    .join_from(_unapplied, _run_of_unapplied, true())
    .order_by(_unapplied.c.updated_at)
    .limit(LIMIT)
)


async def with_unnoticed_decision(
    connection: Connection, *, grace: float, limit: int
) -> list[RunKey]:
    """Waiting runs whose ticket was decided or expired at least `grace` ago; for the sweeper.

    Searched by ticket, because a million runs may wait. Runs that wait for their agent's version, for a rate
    limit or for a decision about a limit are left out: they can't use the decision yet.
    """
    return await _found(connection, _WITH_UNNOTICED_DECISION, limit, grace=grace)


_WITH_UNREAD_INPUT = _search(
    runs.c.waiting_reason == WaitingReason.BACKGROUND_TASKS.value,
    runs.c.unread_inputs > 0,
    NOT_PAUSED,
    _IS_PAST_GRACE,
)


async def with_unread_input(connection: Connection, *, grace: float, limit: int) -> list[RunKey]:
    """Runs that wait for their tasks and got a report at least `grace` ago; for the sweeper."""
    return await _found(connection, _WITH_UNREAD_INPUT, limit, grace=grace)


_RESUMED = _search(
    runs.c.waiting_reason == WaitingReason.MANUAL_PAUSE.value,
    runs.c.pause_requested_at.is_(None),
    _IS_PAST_GRACE,
)


async def resumed(connection: Connection, *, grace: float, limit: int) -> list[RunKey]:
    """Runs whose pause was removed at least `grace` ago and that still wait; for the sweeper."""
    return await _found(connection, _RESUMED, limit, grace=grace)


_WAITING_FOR_VERSION = _search(
    runs.c.waiting_reason == WaitingReason.AGENT_VERSION_UNAVAILABLE.value,
    runs.c.agent_version == any_(bindparam("versions", type_=ARRAY(Text))),
    NOT_PAUSED,
)


async def waiting_for_version(
    connection: Connection, versions: Sequence[AgentVersion], limit: int
) -> list[RunKey]:
    """Runs that wait for one of these agent versions; for the sweeper."""
    values = {"versions": list(versions), "limit": limit}
    return _keys(await connection.execute(_WAITING_FOR_VERSION, values))


_PAST_RATE_LIMIT = _search(
    runs.c.waiting_reason == WaitingReason.RATE_LIMIT.value,
    runs.c.waiting_until < func.now() - GRACE,
    NOT_PAUSED,
    order=runs.c.waiting_until,
)


async def past_rate_limit(connection: Connection, *, grace: float, limit: int) -> list[RunKey]:
    """Runs whose rate limit ended at least `grace` ago and that still wait; for the sweeper."""
    return await _found(connection, _PAST_RATE_LIMIT, limit, grace=grace)
