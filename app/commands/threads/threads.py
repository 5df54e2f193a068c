"""Create, change and delete threads. A start creates a missing thread, too."""

from enum import StrEnum
from typing import Any, assert_never

from app.commands.idempotency import IdempotentCommand, begin_idempotent, store_response
from app.context import ServiceContext
from app.domain.errors import Conflict, NotFound
from app.domain.ids import ThreadId
from app.domain.json_values import JsonObject, storable
from app.domain.principals import Principal, Scope
from app.domain.threads.threads import Thread
from app.queries.records import found_thread, locked_thread
from app.storage.files import files
from app.storage.threads import threads


async def create_thread(
    ctx: ServiceContext,
    principal: Principal,
    thread_id: ThreadId,
    *,
    key: str | None = None,
    title: str | None,
    resource_id: str | None,
    parent_thread_id: ThreadId | None,
    metadata: JsonObject,
    once: IdempotentCommand[Thread] | None = None,
) -> Thread:
    """Create an empty thread."""
    principal.require(Scope.RUNS_WRITE)
    async with ctx.database.transaction() as connection:
        await begin_idempotent(connection, principal, once)
        if parent_thread_id is not None:
            # Locked, so that the parent isn't deleted before it has this child.
            if await threads.lock(connection, principal.tenant, parent_thread_id) is None:
                raise NotFound(
                    "thread_not_found", f"There is no thread {parent_thread_id} to be the parent."
                )
        made = await threads.create(
            connection,
            principal.tenant,
            thread_id,
            key=key,
            title=storable(title),
            resource_id=storable(resource_id),
            parent_thread_id=parent_thread_id,
            metadata=storable(metadata),
        )
        if not made:
            raise thread_exists(thread_id, key)
        found = await found_thread(connection, principal.tenant, thread_id)
        await store_response(connection, principal, once, found)
    return found


def thread_exists(thread_id: ThreadId, key: str | None) -> Conflict:
    name = thread_id if key is None else f"with the key {key!r}: {thread_id}"
    return Conflict("thread_exists", f"There is a thread {name} already.", thread_id=thread_id)


async def change_thread(
    ctx: ServiceContext, principal: Principal, thread_id: ThreadId, changes: dict[str, Any]
) -> Thread:
    """Set title, resource id or metadata; the others don't change."""
    principal.require(Scope.RUNS_WRITE)
    async with ctx.events.transaction() as transaction:
        connection = transaction.connection
        await locked_thread(connection, principal.tenant, thread_id)
        await threads.change(
            connection,
            principal.tenant,
            thread_id,
            {**storable(changes), "updated_at": transaction.now},
        )
        return await found_thread(connection, principal.tenant, thread_id)


class ChildThreads(StrEnum):
    """What happens to the child threads of a deleted thread."""

    REJECT = "reject"
    DETACH = "detach"
    CASCADE = "cascade"


async def delete_thread(
    ctx: ServiceContext, principal: Principal, thread_id: ThreadId, children: ChildThreads
) -> None:
    """Delete a thread with its runs, messages and events; refuse while a run is open on it."""
    principal.require(Scope.RUNS_WRITE)
    async with ctx.database.transaction() as connection:
        thread = await locked_thread(connection, principal.tenant, thread_id)
        doomed = [thread]
        match children:
            case ChildThreads.REJECT:
                if await threads.has_children(connection, principal.tenant, thread_id):
                    raise Conflict(
                        "has_children",
                        "Other threads have this one as their parent. Delete them too with "
                        "?children=cascade, or keep them with ?children=detach.",
                    )
            case ChildThreads.DETACH:
                await threads.detach_children(connection, principal.tenant, thread_id)
            case ChildThreads.CASCADE:
                doomed += await threads.lock_descendants(connection, principal.tenant, thread_id)
            case _:
                assert_never(children)
        for one in doomed:
            _require_idle(one)
        for one in reversed(doomed):
            await files.remove_those_of(connection, principal.tenant, one.id)
            await threads.delete(connection, principal.tenant, one.id)


def _require_idle(thread: Thread) -> None:
    if thread.open_run_id is not None:
        raise Conflict(
            "has_active_run",
            f"A run occupies thread {thread.id}. Cancel it, then delete the thread.",
            thread_id=thread.id,
            active_run_id=thread.open_run_id,
        )
