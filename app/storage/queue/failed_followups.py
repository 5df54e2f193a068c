"""Failed follow-ups: the number of tries, the time of the next one, and whether they were given up."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, delete, exists, func, or_, select, text, update

from app.domain.children.followups import (
    ABORT_REMOTE,
    CALL_RUN_END,
    AbortRemote,
    CallRunEnd,
    ChildFollowup,
    FailedFollowup,
    Followup,
    FollowupKind,
)
from app.domain.ids import RunId, Tenant
from app.domain.json_values import storable_text
from app.storage.codec import Row
from app.storage.postgres.database import Connection
from app.storage.tables import failed_followups as table

_RECORD = text("""
INSERT INTO failed_followups (tenant, name, about, on_behalf_of, error, next_at)
SELECT r.tenant, :name, CAST(:about AS uuid), r.id, :error, now() + CAST(:pause AS interval)
FROM runs r WHERE r.tenant = :tenant AND r.id = CAST(:on_behalf_of AS uuid)
ON CONFLICT (tenant, name, about) DO UPDATE SET tries = failed_followups.tries + 1,
    error = excluded.error, failed_at = now(), next_at = excluded.next_at
RETURNING *
""")


def is_put_off(name: Any, tenant: Any, about: Any, due_before: Any) -> ColumnElement[bool]:
    """Whether a follow-up was given up, or has a retry that isn't overdue."""
    return exists().where(
        table.c.tenant == tenant,
        table.c.name == name,
        table.c.about == about,
        or_(table.c.given_up_at.is_not(None), table.c.next_at > due_before),
    )


async def of_followup(
    connection: Connection, followup: Followup
) -> tuple[FailedFollowup, float] | None:
    """The failure of a follow-up, and the seconds until its next try."""
    wait = func.extract("epoch", table.c.next_at - func.now()).label("wait")
    row = (
        await connection.execute(select(table, wait).where(_is_failure_of(followup)))
    ).one_or_none()
    return None if row is None else (_failed_followup_of(row), max(0.0, float(row["wait"])))


async def of_run(connection: Connection, tenant: Tenant, run_id: RunId) -> list[FailedFollowup]:
    """The failed follow-ups of a run, oldest first."""
    statement = (
        select(table)
        .where(table.c.tenant == tenant, table.c.on_behalf_of == run_id)
        .order_by(table.c.failed_at, table.c.name, table.c.about)
    )
    return [_failed_followup_of(row) for row in (await connection.execute(statement))]


async def record(
    connection: Connection, followup: Followup, error: str, pause: float
) -> FailedFollowup | None:
    """Count a failed try; None if its run was deleted."""
    values = {
        "tenant": followup.tenant,
        "name": followup.name,
        "about": followup.about,
        "on_behalf_of": followup.on_behalf_of,
        "error": storable_text(error),
        "pause": timedelta(seconds=pause),
    }
    row = (await connection.execute(_RECORD, values)).one_or_none()
    return None if row is None else _failed_followup_of(row)


async def give_up(connection: Connection, followup: Followup, at: datetime) -> None:
    await connection.execute(
        update(table)
        .where(_is_failure_of(followup), table.c.given_up_at.is_(None))
        .values(given_up_at=at)
    )


async def remove(connection: Connection, followup: Followup) -> None:
    """Delete the failure of a follow-up that succeeded or isn't needed."""
    await connection.execute(delete(table).where(_is_failure_of(followup)))


def _is_failure_of(followup: Followup) -> ColumnElement[bool]:
    return (
        (table.c.tenant == followup.tenant)
        & (table.c.name == followup.name)
        & (table.c.about == followup.about)
    )


def _failed_followup_of(row: Row) -> FailedFollowup:
    return FailedFollowup(
        followup=_followup_of(row),
        tries=row["tries"],
        next_at=row["next_at"],
        given_up_at=row["given_up_at"],
    )


def _followup_of(row: Row) -> Followup:
    tenant, about = Tenant(row["tenant"]), RunId(str(row["about"]))
    if row["name"] == ABORT_REMOTE:
        return AbortRemote(tenant=tenant, run_id=about)
    if row["name"] == CALL_RUN_END:
        return CallRunEnd(tenant=tenant, run_id=about)
    return ChildFollowup(
        kind=FollowupKind(row["name"]),
        tenant=tenant,
        parent_run_id=RunId(str(row["on_behalf_of"])),
        child_run_id=about,
    )
