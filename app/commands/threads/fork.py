"""Fork: create a thread whose message log begins as a copy of another thread's log.

Copied messages keep their seq, id and author, so references to them stay valid. Runs, tickets and events
aren't copied.
"""

from typing import Any

from msgspec import Struct

from app.commands.idempotency import IdempotentCommand, begin_idempotent, store_response
from app.commands.threads.threads import thread_exists
from app.context import ServiceContext
from app.domain.errors import Conflict, Invalid
from app.domain.ids import RunId, ThreadId
from app.domain.json_values import JsonObject, storable
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import RunRecord
from app.domain.threads.threads import Thread
from app.queries.records import found_thread, locked_thread, run_not_found
from app.storage.files import files
from app.storage.postgres.database import Connection
from app.storage.runs import runs
from app.storage.threads import messages, rollbacks, threads


class ForkRequest(Struct, frozen=True, kw_only=True):
    """Copies up to `to_seq`, up to the end of a run, or the whole log if neither is set.

    A title, resource id or metadata that isn't set is copied, too.
    """

    thread_id: ThreadId
    thread_key: str | None = None
    to_seq: int | None
    run_id: RunId | None
    title: str | None
    resource_id: str | None
    metadata: JsonObject | None


async def fork(
    ctx: ServiceContext,
    principal: Principal,
    origin_id: ThreadId,
    request: ForkRequest,
    *,
    once: IdempotentCommand[Thread] | None = None,
) -> Thread:
    """Create the copy, or refuse and change nothing."""
    principal.require(Scope.RUNS_WRITE)
    tenant = principal.tenant
    async with ctx.events.transaction() as transaction:
        connection = transaction.connection
        await begin_idempotent(connection, principal, once)
        # Locked, so that the origin isn't deleted before it has this child.
        origin = await locked_thread(connection, tenant, origin_id)
        last = await _last_seq(connection, principal, origin, request)
        made = await threads.create(
            connection,
            tenant,
            request.thread_id,
            key=request.thread_key,
            title=storable(request.title if request.title is not None else origin.title),
            resource_id=storable(request.resource_id or origin.resource_id),
            parent_thread_id=origin_id,
            metadata=storable(
                request.metadata if request.metadata is not None else origin.metadata
            ),
        )
        if not made:
            raise thread_exists(request.thread_id, request.thread_key)
        await messages.copy(connection, tenant, origin_id, request.thread_id, up_to=last)
        await files.copy_references(connection, tenant, origin_id, request.thread_id)
        await rollbacks.copy(connection, tenant, origin_id, request.thread_id, up_to=last)
        values: dict[str, Any] = {"next_message_seq": last + 1}
        if last == origin.next_message_seq - 1:
            # The thread's state belongs to the end of its log.
            values["state"] = storable(await threads.state(connection, tenant, origin_id))
        await threads.change(connection, tenant, request.thread_id, values)
        thread = await found_thread(connection, tenant, request.thread_id)
        await store_response(connection, principal, once, thread)
    return thread


async def _last_seq(
    connection: Connection, principal: Principal, origin: Thread, request: ForkRequest
) -> int:
    """The seq of the last message to copy."""
    end = origin.next_message_seq - 1
    if request.run_id is not None:
        run = await runs.get(connection, principal.tenant, request.run_id)
        if run is None or run.thread_id != origin.id:
            raise run_not_found(request.run_id)
        return _end_of(run)
    if request.to_seq is None:
        return end
    if request.to_seq > end:
        raise Invalid(
            "seq_beyond_log", f"The log ends with seq {end}; to_seq can't be {request.to_seq}."
        )
    return request.to_seq


def _end_of(run: RunRecord) -> int:
    if not run.is_done:
        raise Conflict(
            "run_not_finished",
            f"The run is {run.status.value}, so its messages aren't complete. Use to_seq instead.",
        )
    begun = None if run.input is None else run.input.range
    ends = [range_.to_seq for range_ in (begun, run.output.range) if range_ is not None]
    if not ends:
        raise Conflict("run_never_began", "The run has no messages in the log. Use to_seq instead.")
    return max(ends)
