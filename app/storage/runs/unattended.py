"""Runs that a worker should execute, but that have no live worker and no delivery. The sweeper enqueues them."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, exists, func, or_, select

from app.domain.ids import AgentVersion, RunId, Tenant, ThreadId
from app.domain.runs.runs import RunStatus, WaitingReason
from app.domain.tickets.tickets import TicketKind, TicketStatus
from app.storage.postgres.database import Connection
from app.storage.runs.pauses import CLAIMABLE, NOT_PAUSED
from app.storage.runs.runs import RunKey
from app.storage.tables import runs, tickets, workers

_key_columns = (runs.c.tenant, runs.c.thread_id, runs.c.id, runs.c.attempt)


async def keys_of(connection: Connection, statement: Select[Any]) -> list[RunKey]:
    """The runs that a statement selects by tenant, thread_id, id and attempt."""
    rows = await connection.execute(statement)
    return [
        RunKey(Tenant(row.tenant), ThreadId(row.thread_id), RunId(row.id), row.attempt)
        for row in rows
    ]


_SWEEP_LOCK = 0x53776565


async def may_sweep(connection: Connection) -> bool:
    """Try to take the sweep lock until commit, so that one process sweeps at a time."""
    statement = select(func.pg_try_advisory_xact_lock(_SWEEP_LOCK))
    return bool((await connection.execute(statement)).scalar_one())


async def without_owner(
    connection: Connection, *, heartbeat_timeout: float, grace: float, limit: int
) -> list[RunKey]:
    """Runs of all tenants that a worker should execute and that have no live owner; for the sweeper.

    A run without owner that changed within `grace` is left out: its delivery is still queued.
    """
    return await keys_of(
        connection,
        select(*_key_columns)
        .where(is_without_owner(heartbeat_timeout, grace), CLAIMABLE)
        .order_by(runs.c.updated_at)
        .limit(limit),
    )


def is_without_owner(heartbeat_timeout: float, grace: float) -> ColumnElement[bool]:
    """An admitted run that is not suspended, and that no live worker owns."""
    alive = exists().where(
        workers.c.id == runs.c.owner,
        workers.c.heartbeat_at > func.now() - timedelta(seconds=heartbeat_timeout),
    )
    is_past_grace = runs.c.updated_at < func.now() - timedelta(seconds=grace)
    return and_(
        runs.c.admitted,
        runs.c.status.in_((RunStatus.CREATED.value, RunStatus.RUNNING.value)),
        or_(runs.c.owner.is_(None) & is_past_grace, runs.c.owner.is_not(None) & ~alive),
    )


async def with_unnoticed_decision(
    connection: Connection, *, grace: float, limit: int
) -> list[RunKey]:
    """Waiting runs whose ticket was decided or expired at least `grace` ago; for the sweeper.

    Searched by ticket, because a million runs may wait. Runs that wait for their agent's version, for a rate
    limit or for a decision about a limit are left out: they can't use the decision yet.
    """
    its_run = (tickets.c.tenant == runs.c.tenant) & (tickets.c.run_id == runs.c.id)
    limit_tickets = tickets.alias("limit_tickets")
    has_open_limit = exists().where(
        limit_tickets.c.tenant == runs.c.tenant,
        limit_tickets.c.run_id == runs.c.id,
        limit_tickets.c.kind == TicketKind.LIMIT.value,
        limit_tickets.c.status == TicketStatus.OPEN.value,
    )
    return await keys_of(
        connection,
        select(*_key_columns)
        .join_from(tickets, runs, its_run)
        .where(
            tickets.c.status.in_(("decided", "expired")),
            tickets.c.applied_at.is_(None),
            tickets.c.updated_at < func.now() - timedelta(seconds=grace),
            runs.c.status == RunStatus.WAITING.value,
            runs.c.waiting_reason.not_in(
                (WaitingReason.AGENT_VERSION_UNAVAILABLE.value, WaitingReason.RATE_LIMIT.value)
            ),
            NOT_PAUSED,
            ~has_open_limit,
        )
        .order_by(tickets.c.updated_at)
        .limit(limit),
    )


async def with_unread_input(connection: Connection, *, grace: float, limit: int) -> list[RunKey]:
    """Runs that wait for their tasks and got a report at least `grace` ago; for the sweeper."""
    return await keys_of(
        connection,
        select(*_key_columns)
        .where(
            runs.c.waiting_reason == WaitingReason.BACKGROUND_TASKS.value,
            runs.c.unread_inputs > 0,
            NOT_PAUSED,
            runs.c.updated_at < func.now() - timedelta(seconds=grace),
        )
        .order_by(runs.c.updated_at)
        .limit(limit),
    )


async def resumed(connection: Connection, *, grace: float, limit: int) -> list[RunKey]:
    """Runs whose pause was removed at least `grace` ago and that still wait; for the sweeper."""
    return await keys_of(
        connection,
        select(*_key_columns)
        .where(
            runs.c.waiting_reason == WaitingReason.MANUAL_PAUSE.value,
            runs.c.pause_requested_at.is_(None),
            runs.c.updated_at < func.now() - timedelta(seconds=grace),
        )
        .order_by(runs.c.updated_at)
        .limit(limit),
    )


async def waiting_for_version(
    connection: Connection, versions: Sequence[AgentVersion], limit: int
) -> list[RunKey]:
    """Runs that wait for one of these agent versions; for the sweeper."""
    return await keys_of(
        connection,
        select(*_key_columns)
        .where(
            runs.c.waiting_reason == WaitingReason.AGENT_VERSION_UNAVAILABLE.value,
            runs.c.agent_version.in_(versions),
            NOT_PAUSED,
        )
        .order_by(runs.c.updated_at)
        .limit(limit),
    )


async def past_rate_limit(connection: Connection, *, grace: float, limit: int) -> list[RunKey]:
    """Runs whose rate limit ended at least `grace` ago and that still wait; for the sweeper."""
    return await keys_of(
        connection,
        select(*_key_columns)
        .where(
            runs.c.waiting_reason == WaitingReason.RATE_LIMIT.value,
            runs.c.waiting_until < func.now() - timedelta(seconds=grace),
            NOT_PAUSED,
        )
        .order_by(runs.c.waiting_until)
        .limit(limit),
    )
