"""What a running tool call owns: its run under an attempt, or a background task."""

from msgspec import Struct

from app.domain.children.background_tasks import TaskKey
from app.domain.errors import OwnershipLost
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.runs.runs import RunRecord, RunStatus
from app.storage.children import background_tasks
from app.storage.postgres.database import Connection
from app.storage.runs import runs
from app.storage.threads import threads


class ToolOwner(Struct, frozen=True):
    """The run of a tool, and what its worker owns: the run under this attempt, or a background task."""

    tenant: Tenant
    run_id: RunId
    thread_id: ThreadId
    fence: int | TaskKey


async def locked_run(connection: Connection, owner: ToolOwner) -> RunRecord:
    """Lock the thread and the run, and check that this worker still owns the run or the task."""
    thread = await threads.lock(connection, owner.tenant, owner.thread_id)
    record = await runs.lock(connection, owner.tenant, owner.run_id)
    if thread is None or record is None or not await _is_owned(connection, record, owner.fence):
        raise OwnershipLost(owner.run_id)
    return record


async def _is_owned(connection: Connection, record: RunRecord, fence: int | TaskKey) -> bool:
    if isinstance(fence, TaskKey):
        return await background_tasks.is_owned(connection, fence)
    return record.attempt == fence and record.status is RunStatus.RUNNING
