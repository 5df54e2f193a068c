"""Totals of usage by group: of a thread, of runs, and of a period.

A total of a period takes the sums of whole hours, or of whole days if it is about subjects, and the ledger for the rest
of the period. A total about threads or a tree of runs takes the ledger only.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    and_,
    cast,
    func,
    literal,
    or_,
    select,
    tuple_,
)

from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.runs.runs import RunRecord
from app.domain.slices import Slice
from app.domain.usage.totals import UsageFilter, UsageGroup, UsageTotal
from app.storage.postgres.database import Connection
from app.storage.tables import runs, usage
from app.storage.usage.rows import ledger_rows, summed_rows

_BY_MODEL = (UsageGroup.PROVIDER, UsageGroup.MODEL)


async def by_model(
    connection: Connection, tenant: Tenant, thread_id: ThreadId
) -> tuple[UsageTotal, ...]:
    """The usage of a thread by model."""
    rows = ledger_rows(usage.c.tenant == tenant, usage.c.thread_id == thread_id)
    return await _totals(connection, rows, _BY_MODEL)


async def by_model_of_runs(
    connection: Connection, tenant: Tenant, records: Sequence[RunRecord]
) -> dict[RunId, tuple[UsageTotal, ...]]:
    """The usage of each run by model. Runs without a billed request are left out."""
    rows = ledger_rows(
        usage.c.tenant == tenant,
        usage.c.thread_id.in_({record.thread_id for record in records}),
        usage.c.run_id.in_([record.id for record in records]),
    )
    keys = _keys(rows, _BY_MODEL)
    statement = (
        select(*keys, rows.c.run_id, *_sums(rows)).group_by(rows.c.run_id, *keys).order_by(*keys)
    )
    totals: dict[RunId, tuple[UsageTotal, ...]] = {}
    for row in await connection.execute(statement):
        run_id = RunId(row.run_id)
        totals[run_id] = (*totals.get(run_id, ()), _total(row, _BY_MODEL))
    return totals


async def page(
    connection: Connection,
    tenant: Tenant,
    wanted: UsageFilter,
    groups: Sequence[UsageGroup],
    *,
    after: Sequence[str] | None,
    limit: int,
) -> Slice[UsageTotal]:
    """Totals by group, in the order of the groups' values. `after` has the values of the last total before."""
    of_threads = wanted.thread_id is not None or wanted.root_run_id is not None
    if of_threads or UsageGroup.THREAD in groups:
        conditions = [*_conditions(tenant, wanted)]
        if wanted.root_run_id is not None:
            conditions.append(await _in_tree(connection, tenant, wanted.root_run_id))
        rows = ledger_rows(*conditions)
    else:
        rows = summed_rows(tenant, wanted, by_subject=UsageGroup.SUBJECT in groups)
    found = await _totals(connection, rows, groups, after=after, limit=limit + 1)
    return Slice(found[:limit], has_more=len(found) > limit)


def _conditions(tenant: Tenant, wanted: UsageFilter) -> Iterator[ColumnElement[bool]]:
    """All conditions but that for a tree of runs."""
    yield usage.c.tenant == tenant
    yield usage.c.at >= wanted.begin
    yield usage.c.at < wanted.end
    filters = {
        usage.c.agent_id: wanted.agent_id,
        usage.c.model: wanted.model,
        usage.c.subject: wanted.subject,
        usage.c.thread_id: wanted.thread_id,
    }
    yield from (column == value for column, value in filters.items() if value is not None)


async def _in_tree(connection: Connection, tenant: Tenant, root: RunId) -> ColumnElement[bool]:
    """Whether a request is one of this run or of a run below it, also if their threads are deleted."""
    thread_id = await connection.scalar(
        select(runs.c.thread_id).where(runs.c.tenant == tenant, runs.c.id == root)
    )
    if thread_id is None:
        return usage.c.root_run_id == root
    # In this form Postgres can use the partial index `usage_below_roots`, and the primary key.
    in_tree = usage.c.root_run_id == root
    below = and_(in_tree, usage.c.run_id != usage.c.root_run_id)
    return or_(below, and_(in_tree, usage.c.thread_id == thread_id, usage.c.run_id == root))


async def _totals(
    connection: Connection,
    rows: FromClause,
    groups: Sequence[UsageGroup],
    *,
    after: Sequence[str] | None = None,
    limit: int | None = None,
) -> tuple[UsageTotal, ...]:
    keys = _keys(rows, groups)
    statement = select(*keys, *_sums(rows))
    if after is not None:
        last = [_literal(group, value) for group, value in zip(groups, after, strict=True)]
        statement = statement.where(
            tuple_(*(_key(rows, group) for group in groups)) > tuple_(*last)
        )
    if groups:
        statement = statement.group_by(*keys).order_by(*keys)
    found = await connection.execute(statement.limit(limit))
    return tuple(_total(row, groups) for row in found)


def _keys(rows: FromClause, groups: Sequence[UsageGroup]) -> list[ColumnElement[str]]:
    return [_key(rows, group).label(f"by_{group}") for group in groups]


def _key(rows: FromClause, group: UsageGroup) -> ColumnElement[str]:
    """What totals are ordered by. Ids of threads have the order of their texts, and an index."""
    column: ColumnElement[Any]
    match group:
        case UsageGroup.THREAD:
            return rows.c.thread_id
        case UsageGroup.DAY:
            column = func.to_char(func.timezone("UTC", rows.c.at), "YYYY-MM-DD")
        case UsageGroup.AGENT:
            column = rows.c.agent_id
        case _:
            column = rows.c[group.value]
    return column.collate("C")


def _literal(group: UsageGroup, value: str) -> ColumnElement[str]:
    if group is UsageGroup.THREAD:
        return literal(value, usage.c.thread_id.type)
    return literal(value).collate("C")


def _sums(rows: FromClause) -> list[ColumnElement[int]]:
    names = {
        "requests": "requests",
        "input_tokens": "input",
        "output_tokens": "output",
        "cache_read_tokens": "cache_read",
        "cache_write_tokens": "cache_write",
        "reasoning_tokens": "reasoning",
        "unpriced_requests": "unpriced",
    }
    return [
        *(
            cast(func.coalesce(func.sum(rows.c[column]), 0), BigInteger).label(name)
            for name, column in names.items()
        ),
        cast(func.sum(rows.c.cost_micros), BigInteger).label("cost_micros"),
    ]


def _total(row: Any, groups: Sequence[UsageGroup]) -> UsageTotal:
    """The sum of a row that begins with its groups."""
    return UsageTotal(
        group={group: row[place] for place, group in enumerate(groups)},
        requests=row.requests,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cache_read_tokens=row.cache_read_tokens,
        cache_write_tokens=row.cache_write_tokens,
        reasoning_tokens=row.reasoning_tokens,
        cost_micros=row.cost_micros,
        unpriced_requests=row.unpriced_requests,
    )
