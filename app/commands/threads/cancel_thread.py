"""Cancel a thread's open run and all queued runs, in one transaction.

Queued runs are cancelled first, the last one first: no end may admit a run that is about to be cancelled.
"""

from msgspec import Struct

from app.commands.idempotency import IdempotentCommand, begin_idempotent, store_response
from app.commands.runs.cancel import announce_cancel, request_cancel
from app.context import ServiceContext
from app.domain.ids import ThreadId
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import RunRecord
from app.queries.records import locked_thread
from app.storage.runs import runs, thread_queue


class ThreadCancelAnswer(Struct, frozen=True):
    """The cancelled runs in queue order; none on an idle thread."""

    thread_id: ThreadId
    runs: tuple[RunRecord, ...]

    @property
    def is_settled(self) -> bool:
        return all(run.is_done for run in self.runs)


async def cancel_thread(
    ctx: ServiceContext,
    principal: Principal,
    thread_id: ThreadId,
    *,
    reason: str | None,
    once: IdempotentCommand[ThreadCancelAnswer] | None = None,
) -> ThreadCancelAnswer:
    """Request the cancel of every unfinished run of a thread."""
    principal.require(Scope.RUNS_WRITE)
    tenant = principal.tenant
    async with ctx.events.transaction() as transaction:
        connection = transaction.connection
        await begin_idempotent(connection, principal, once)
        thread = await locked_thread(connection, tenant, thread_id)
        unfinished = await thread_queue.lock_unfinished(connection, tenant, thread_id)
        interrupted = []
        for run_id in reversed(unfinished):
            # One at a time: a hundred large runs would take long to decode at once.
            record = await runs.get(connection, tenant, run_id)
            if record is not None:
                interrupted.append(
                    await request_cancel(
                        transaction, thread, record, by=principal.subject, reason=reason
                    )
                )
        after = [await runs.get(connection, tenant, run_id) for run_id in unfinished]
        answer = ThreadCancelAnswer(thread_id, tuple(run for run in after if run is not None))
        await store_response(connection, principal, once, answer)
    for interruption in interrupted:
        await announce_cancel(ctx, interruption)
    return answer
