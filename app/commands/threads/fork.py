"""Fork: a new thread that begins as a copy of another one's log, and goes its own way from there.

Messages keep their places, their ids and who wrote them, so that what refers to them still does. Runs,
tickets and events stay with the thread that they belong to.
"""

from dataclasses import dataclass
from typing import Any

from app.commands.idempotency import IdempotentCommand, begin_once, keep_answer
from app.context import ServiceContext
from app.domain.errors import Conflict, Invalid
from app.domain.ids import RunId, ThreadId
from app.domain.json_values import JsonObject, storable
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import RunRecord
from app.domain.threads.threads import Thread
from app.queries.records import found_thread, locked_thread, run_not_found
from app.storage.postgres.database import Connection
from app.storage.runs import runs
from app.storage.threads import messages, rollbacks, threads


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkRequest:
    """Up to which message, or up to the end of which run; the whole log when neither is named.

    What isn't said of the new thread is as it was on the old one.
    """

    thread_id: ThreadId
    from_seq: int | None
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
    """Make the copy, or refuse and change nothing."""
    principal.require(Scope.RUNS_WRITE)
    tenant = principal.tenant
    async with ctx.events.transaction() as transaction:
        connection = transaction.connection
        await begin_once(connection, principal, once)
        # Locked, so that nobody deletes a thread that is about to have a child.
        origin = await locked_thread(connection, tenant, origin_id)
        last = await _last_seq(connection, principal, origin, request)
        made = await threads.create(
            connection,
            tenant,
            request.thread_id,
            title=storable(request.title if request.title is not None else origin.title),
            resource_id=storable(request.resource_id or origin.resource_id),
            parent_thread_id=origin_id,
            metadata=storable(
                request.metadata if request.metadata is not None else origin.metadata
            ),
        )
        if not made:
            raise Conflict("thread_exists", f"There is a thread {request.thread_id} already.")
        await messages.copy(connection, tenant, origin_id, request.thread_id, up_to=last)
        await rollbacks.copy(connection, tenant, origin_id, request.thread_id, up_to=last)
        values: dict[str, Any] = {"next_message_seq": last + 1}
        if last == origin.next_message_seq - 1:
            # What a thread remembers is true at its end only.
            values["state"] = storable(await threads.state(connection, tenant, origin_id))
        await threads.change(connection, tenant, request.thread_id, values)
        thread = await found_thread(connection, tenant, request.thread_id)
        await keep_answer(connection, principal, once, thread)
    return thread


async def _last_seq(
    connection: Connection, principal: Principal, origin: Thread, request: ForkRequest
) -> int:
    """The last place of the log that the copy has."""
    end = origin.next_message_seq - 1
    if request.run_id is not None:
        run = await runs.get(connection, principal.tenant, request.run_id)
        if run is None or run.thread_id != origin.id:
            raise run_not_found(request.run_id)
        return _end_of(run)
    if request.from_seq is None:
        return end
    if request.from_seq > end:
        raise Invalid(
            "seq_beyond_log", f"The log ends with seq {end}; from_seq can't be {request.from_seq}."
        )
    return request.from_seq


def _end_of(run: RunRecord) -> int:
    if not run.is_done:
        raise Conflict(
            "run_not_finished",
            f"The run is {run.status.value}, and its part of the log isn't whole. Name a from_seq.",
        )
    begun = None if run.input is None else run.input.range
    ends = [stretch.to_seq for stretch in (begun, run.output.range) if stretch is not None]
    if not ends:
        raise Conflict(
            "run_never_began", "The run has put nothing into the log. Name a from_seq instead."
        )
    return max(ends)
