"""Save a summary that was completed after its run's end, and what it cost.

The summary is dropped if another run has the thread since, or if a summarised message was rolled back. Its
provider bills it in any case.
"""

from collections.abc import Sequence

from app.domain.ids import Tenant, ThreadId
from app.domain.json_values import storable
from app.domain.runs.runs import RunRecord
from app.domain.usage.billed_requests import BilledRequest
from app.runtime.compaction.compaction import FAILURES, CompactionResult
from app.runtime.history.summaries import summary_of
from app.runtime.state import ChangeBatch, StateScope, StateStore
from app.storage.postgres.database import Database
from app.storage.threads import messages, rollbacks, threads
from app.storage.usage import ledger


async def save_late_summary(
    database: Database, tenant: Tenant, thread_id: ThreadId, outcome: CompactionResult
) -> bool:
    """Append the summary under the thread's lock; False if the thread has an open run: only that writes
    its log.

    The usage of the run that made the summary doesn't change.
    """
    async with database.transaction() as connection:
        thread = await threads.lock(connection, tenant, thread_id)
        if thread is None or thread.open_run_id is not None:
            return False
        for message in outcome.messages:
            summary = summary_of(message)
            if summary is not None and await rollbacks.overlaps(
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


async def bill_late_summary(
    database: Database, record: RunRecord, requests: Sequence[BilledRequest]
) -> None:
    """Add the summary's requests to the ledger. The record of its run, which is done, doesn't change."""
    if requests:
        async with database.transaction() as connection:
            await ledger.add(connection, record.tenant, record.id, record.attempt, requests)
