"""The status of the runs that occupy some threads, or that were the last ones there."""

from collections.abc import Iterable

from msgspec import Struct

from app.domain.ids import AgentId, RunId, Tenant, ThreadId
from app.domain.runs.runs import RunStatus
from app.domain.runs.terminations import OUTCOME_OF_TYPE, Outcome
from app.storage.postgres.database import RawPool

_STATUSES = """
SELECT r.id, r.thread_id, r.agent_id, r.status, r.termination ->> 'type' AS type
FROM threads t JOIN runs r ON r.tenant = t.tenant AND r.id IN (t.open_run_id, t.latest_run_id)
WHERE t.tenant = $1 AND t.id = ANY($2::uuid[])
"""


class RunStatusNow(Struct, frozen=True):
    run_id: RunId
    thread_id: ThreadId
    agent_id: AgentId
    status: RunStatus
    outcome: Outcome | None


async def of_threads(
    pool: RawPool, tenant: Tenant, threads: Iterable[ThreadId]
) -> list[RunStatusNow]:
    rows = await pool.fetch(_STATUSES, tenant, list(threads))
    return [
        RunStatusNow(
            RunId(str(row["id"])),
            ThreadId(str(row["thread_id"])),
            AgentId(row["agent_id"]),
            RunStatus(row["status"]),
            None if row["type"] is None else OUTCOME_OF_TYPE[row["type"]],
        )
        for row in rows
    ]
