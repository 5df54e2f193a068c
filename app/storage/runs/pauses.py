"""The pause request on a run's row; every writer holds the run's lock."""

from sqlalchemy import ColumnElement, case, func, or_, update

from app.domain.ids import RunId, Tenant
from app.domain.json_values import storable
from app.domain.runs.runs import RunStatus
from app.storage.postgres.database import Connection
from app.storage.tables import runs

NOT_PAUSED: ColumnElement[bool] = or_(
    runs.c.pause_requested_at.is_(None), runs.c.cancel_requested_at.is_not(None)
)
"""A run that waits may be claimed. A cancel request overrides a pause."""
CLAIMABLE: ColumnElement[bool] = or_(runs.c.status == RunStatus.RUNNING.value, NOT_PAUSED)
"""The same of a run in any status. A paused run that lost its owner is claimed to be suspended."""


async def request(
    connection: Connection, tenant: Tenant, run_id: RunId, *, by: str, reason: str | None
) -> bool:
    """Write a pause request; False when the run has one already, which stays."""
    result = await connection.execute(
        update(runs)
        .where(runs.c.tenant == tenant, runs.c.id == run_id, runs.c.pause_requested_at.is_(None))
        .values(pause_requested_at=func.now(), pause_requested_by=by, pause_reason=storable(reason))
    )
    return result.rowcount == 1


async def remove(connection: Connection, tenant: Tenant, run_id: RunId) -> bool:
    """Remove the pause request; False when there was none.

    `updated_at` of a run that waits starts the grace period of the sweeper anew, because a delivery is on
    its way. For an executing run it stays the time of the last checkpoint.
    """
    result = await connection.execute(
        update(runs)
        .where(runs.c.tenant == tenant, runs.c.id == run_id, runs.c.pause_requested_at.is_not(None))
        .values(
            pause_requested_at=None,
            pause_requested_by=None,
            pause_reason=None,
            updated_at=case(
                (runs.c.status == RunStatus.RUNNING.value, runs.c.updated_at), else_=func.now()
            ),
        )
    )
    return result.rowcount == 1
