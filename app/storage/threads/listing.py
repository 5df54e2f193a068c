"""Lists of threads: by creation, or by the start of their last run; found by the words of their titles."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    TextClause,
    select,
    text,
    true,
    tuple_,
)

from app.domain.ids import Tenant, ThreadId
from app.domain.slices import Order, PageRequest, Slice
from app.domain.threads.keys import thread_id_of_key
from app.domain.threads.messages import Role
from app.domain.threads.threads import ListedThread, MessagePreview, ThreadFilter, ThreadSort
from app.storage.codec import Row
from app.storage.page_rows import BY_CREATION, page_of
from app.storage.postgres.database import Connection
from app.storage.tables import runs, threads
from app.storage.threads import titles
from app.storage.threads.threads import thread_of

PREVIEW_CHARACTERS = 200
RUNS_AT_ONCE = 3_000
"""How many runs are searched for the threads of a page, before all threads are sorted."""
RUNS_FOR_WORDS = 30_000
"""The same for threads with frequent words of the title, of which a page is found among more runs."""
_BY_LAST_RUN = ("last_run_at", "last_run_id")

_PREVIEWS = """
SELECT t.id, m.role, m.created_at, left((
    SELECT string_agg(part ->> 'text', ' ') FROM jsonb_array_elements(m.content) AS part
    WHERE part ->> 'type' = 'text'), :characters) AS preview
FROM unnest(CAST(:ids AS uuid[])) AS t(id), LATERAL (
    SELECT role, content, created_at FROM messages
    WHERE tenant = :tenant AND thread_id = t.id AND visibility = 'all' AND {which} LIMIT 1
) AS m
"""
# The newest message that a person or the agent wrote, without results of tools.
_LAST_MESSAGES = text(_PREVIEWS.format(which="role IN ('user', 'assistant') ORDER BY seq DESC"))
_FIRST_MESSAGES = text(_PREVIEWS.format(which="role = 'user' ORDER BY seq"))


async def page(
    connection: Connection,
    tenant: Tenant,
    wanted: ThreadFilter,
    sort: ThreadSort,
    requested: PageRequest,
) -> Slice[ListedThread]:
    """A page of threads. Sorted by their last run, threads without a run are left out."""
    conditions = [*_conditions(tenant, wanted)]
    title = None if wanted.title is None else await titles.search(connection, tenant, wanted.title)
    if title is not None:
        conditions.append(title.condition)
    statement: Select[Any] = select(threads).where(*conditions)
    if sort is ThreadSort.CREATED:
        return await page_of(connection, statement, _listed, requested, by=BY_CREATION)
    # A page is usually among the threads of the newest runs. Otherwise all threads that fit are sorted. No index of
    # threads has the time of the last run: it would change when a run starts or a step ends.
    if title is None or title.is_frequent:
        searched = RUNS_AT_ONCE if title is None else RUNS_FOR_WORDS
        newest = _in_order_of_runs(tenant, conditions, requested, searched)
        found = await page_of(connection, newest, _listed_by_run, requested, by=_BY_LAST_RUN)
        if found.has_more:
            return found
    is_latest = (
        (runs.c.tenant == threads.c.tenant)
        & (runs.c.thread_id == threads.c.id)
        & (runs.c.id == threads.c.latest_run_id)
    )
    statement = statement.add_columns(
        runs.c.created_at.label("last_run_at"), runs.c.id.label("last_run_id")
    ).join(runs, is_latest)
    return await page_of(connection, statement, _listed_by_run, requested, by=_BY_LAST_RUN)


def _in_order_of_runs(
    tenant: Tenant,
    conditions: Sequence[ColumnElement[bool] | TextClause],
    requested: PageRequest,
    most: int,
) -> Select[Any]:
    """The threads whose last run is one of the next `most`, in the order of the runs' index."""
    place = (runs.c.created_at, runs.c.id)
    descending = requested.order is Order.DESC
    next_runs = select(runs.c.thread_id, *place).where(runs.c.tenant == tenant)
    if requested.after is not None:
        position = tuple_(*place)
        next_runs = next_runs.where(
            position < requested.after if descending else position > requested.after
        )
    run = (
        next_runs.order_by(*(key.desc() if descending else key for key in place))
        .limit(most)
        .subquery("run")
    )
    of_run = select(threads).where(
        threads.c.id == run.c.thread_id, threads.c.latest_run_id == run.c.id, *conditions
    )
    # With an offset, Postgres reads each thread by its key instead of joining the tables first.
    thread = of_run.offset(0).lateral("thread")
    return select(
        *thread.c, run.c.created_at.label("last_run_at"), run.c.id.label("last_run_id")
    ).join_from(run, thread, true())


async def last_messages(
    connection: Connection, tenant: Tenant, ids: Sequence[ThreadId]
) -> dict[ThreadId, MessagePreview]:
    """The beginnings of the newest messages of these threads."""
    return await _previews(connection, _LAST_MESSAGES, tenant, ids)


async def first_messages(
    connection: Connection, tenant: Tenant, ids: Sequence[ThreadId]
) -> dict[ThreadId, MessagePreview]:
    """The beginnings of the first messages of users in these threads."""
    return await _previews(connection, _FIRST_MESSAGES, tenant, ids)


async def _previews(
    connection: Connection, statement: TextClause, tenant: Tenant, ids: Sequence[ThreadId]
) -> dict[ThreadId, MessagePreview]:
    given = {"tenant": tenant, "ids": list(ids), "characters": PREVIEW_CHARACTERS}
    rows = (await connection.execute(statement, given)).all()
    return {
        ThreadId(str(row["id"])): MessagePreview(
            Role(row["role"]), row["preview"] or "", row["created_at"]
        )
        for row in rows
    }


def _conditions(tenant: Tenant, wanted: ThreadFilter) -> Iterator[ColumnElement[bool] | TextClause]:
    """All conditions but that for the title."""
    yield threads.c.tenant == tenant
    if wanted.key is not None:
        # The id follows from the key, so that the key needs no index.
        yield threads.c.id == thread_id_of_key(tenant, wanted.key)
        yield threads.c.key == wanted.key
    if wanted.resource_id is not None:
        yield threads.c.resource_id == wanted.resource_id
    if wanted.parent_thread_id is not None:
        yield threads.c.parent_thread_id == wanted.parent_thread_id
    if wanted.metadata:
        # The second condition lets Postgres use the partial index `threads_metadata`.
        yield threads.c.metadata.contains(dict(wanted.metadata))
        yield text("threads.metadata <> '{}'")


def _listed(row: Row) -> ListedThread:
    return ListedThread(thread_of(row))


def _listed_by_run(row: Row) -> ListedThread:
    return ListedThread(thread_of(row), row["last_run_at"])
