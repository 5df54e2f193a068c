"""Threads: made, described and removed on their own; runs make them too."""

from enum import StrEnum
from typing import Any, assert_never

from app.commands.idempotency import IdempotentCommand, begin_once, keep_answer
from app.context import ServiceContext
from app.domain.errors import Conflict, NotFound
from app.domain.ids import ThreadId
from app.domain.json_values import JsonObject, storable
from app.domain.principals import Principal, Scope
from app.domain.threads.threads import Thread
from app.queries.records import found_thread, locked_thread
from app.storage.threads import threads


async def create_thread(
    ctx: ServiceContext,
    principal: Principal,
    thread_id: ThreadId,
    *,
    title: str | None,
    resource_id: str | None,
    parent_thread_id: ThreadId | None,
    metadata: JsonObject,
    once: IdempotentCommand[Thread] | None = None,
) -> Thread:
    """A new, empty thread."""
    principal.require(Scope.RUNS_WRITE)
    async with ctx.database.transaction() as connection:
        await begin_once(connection, principal, once)
        if parent_thread_id is not None:
            # Locked, so that nobody deletes a thread that is about to have a child.
            if await threads.lock(connection, principal.tenant, parent_thread_id) is None:
                raise NotFound(
                    "thread_not_found", f"There is no thread {parent_thread_id} to be the parent."
                )
        made = await threads.create(
            connection,
            principal.tenant,
            thread_id,
            title=storable(title),
            resource_id=storable(resource_id),
            parent_thread_id=parent_thread_id,
            metadata=storable(metadata),
        )
        if not made:
            raise Conflict("thread_exists", f"There is a thread {thread_id} already.")
        found = await found_thread(connection, principal.tenant, thread_id)
        await keep_answer(connection, principal, once, found)
    return found


async def change_thread(
    ctx: ServiceContext, principal: Principal, thread_id: ThreadId, changes: dict[str, Any]
) -> Thread:
    """Set title, resource or metadata; what isn't named stays."""
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
    """What becomes of the threads that have a deleted one as their parent."""

    REJECT = "reject"
    DETACH = "detach"
    CASCADE = "cascade"


async def delete_thread(
    ctx: ServiceContext, principal: Principal, thread_id: ThreadId, children: ChildThreads
) -> None:
    """Remove a thread with its runs, messages and events, unless somebody still needs it."""
    principal.require(Scope.RUNS_WRITE)
    async with ctx.database.transaction() as connection:
        thread = await locked_thread(connection, principal.tenant, thread_id)
        going = [thread]
        match children:
            case ChildThreads.REJECT:
                if await threads.has_children(connection, principal.tenant, thread_id):
                    raise Conflict(
                        "has_children",
                        "Other threads have this one as their parent. Delete them too with "
                        "?children=cascade, or let them be with ?children=detach.",
                    )
            case ChildThreads.DETACH:
                await threads.detach_children(connection, principal.tenant, thread_id)
            case ChildThreads.CASCADE:
                going += await threads.lock_descendants(connection, principal.tenant, thread_id)
            case _:
                assert_never(children)
        for one in going:
            _require_idle(one)
        for one in reversed(going):
            await threads.delete(connection, principal.tenant, one.id)


def _require_idle(thread: Thread) -> None:
    if thread.open_run_id is not None:
        raise Conflict(
            "has_active_run",
            f"A run occupies thread {thread.id}. Cancel it, then delete the thread.",
            thread_id=thread.id,
            active_run_id=thread.open_run_id,
        )
