"""A summary that came when its run was over: kept if nobody has gone on with the thread meanwhile, and
nothing of what it stands for has been rolled back."""

from app.domain.ids import Tenant, ThreadId
from app.domain.json_values import storable
from app.runtime.compaction.compaction import FAILURES, CompactionResult
from app.runtime.history.summaries import summary_of
from app.runtime.state import ChangeBatch, StateScope, StateStore
from app.storage.postgres.database import Database
from app.storage.threads import messages, rollbacks, threads


async def save_late_summary(
    database: Database, tenant: Tenant, thread_id: ThreadId, outcome: CompactionResult
) -> bool:
    """Append it under the thread's lock; False when a run has the thread, whose log only that may write.

    The run that it was made for keeps the usage that it ended with.
    """
    async with database.transaction() as connection:
        thread = await threads.lock(connection, tenant, thread_id)
        if thread is None or thread.open_run_id is not None:
            return False
        for message in outcome.messages:
            summary = summary_of(message)
            if summary is not None and await rollbacks.touch(
                connection, tenant, thread_id, summary.of
            ):
                return False
        state = StateStore([FAILURES])
        state.restore(StateScope.THREAD, await threads.state(connection, tenant, thread_id))
        state.commit(ChangeBatch(outcome.changes))
        await messages.append(
            connection, tenant, thread_id, thread.next_message_seq, outcome.messages
        )
        await threads.change(
            connection,
            tenant,
            thread_id,
            {
                "next_message_seq": thread.next_message_seq + len(outcome.messages),
                "state": storable(state.exported(StateScope.THREAD)),
            },
        )
    return True
