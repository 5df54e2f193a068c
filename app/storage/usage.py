"""The usage ledger: one row for each request to a model that its provider bills.

A checkpoint writes its rows in its own statement. The rows stay when their thread is deleted.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    and_,
    cast,
    delete,
    func,
    literal,
    select,
    tuple_,
)
from sqlalchemy import Text as TextType

from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.runs.runs import RunRecord
from app.domain.slices import Slice
from app.domain.usage.billed_requests import BilledRequest
from app.domain.usage.totals import UsageFilter, UsageGroup, UsageTotal
from app.storage.codec import storable_json
from app.storage.postgres.database import Connection
from app.storage.postgres.named_parameters import NamedSql
from app.storage.tables import usage

_OF_REQUEST = {
    "step_index": "int",
    "number": "int",
    "agent_id": "text",
    "model": "text",
    "provider": "text",
    "kind": "text",
    "input": "bigint",
    "output": "bigint",
    "cache_read": "bigint",
    "cache_write": "bigint",
    "reasoning": "bigint",
    "cost_micros": "bigint",
    "priced_by": "text",
}


def billed_cte(parameter: str, owner: str) -> str:
    """A common table expression that inserts the requests of a JSON parameter.

    `owner` is a table expression `o` with i, attempt and columns of the run. The time of a row is that of the
    database, so that periods don't depend on the clocks of replicas.
    """
    typed = ", ".join(f"{name} {type_}" for name, type_ in _OF_REQUEST.items())
    return f"""billed AS (
    INSERT INTO usage (tenant, thread_id, run_id, attempt, root_run_id, subject, {", ".join(_OF_REQUEST)})
    SELECT o.tenant, o.thread_id, o.run_id, o.attempt, o.root_run_id, o.started_by,
        {", ".join(f"u.{name}" for name in _OF_REQUEST)}
    FROM jsonb_to_recordset({parameter}::text::jsonb) AS u(i int, {typed})
    JOIN {owner} ON o.i = u.i
    ON CONFLICT DO NOTHING
)"""


def billed_json(requests: Iterable[tuple[int, BilledRequest]]) -> str:
    """The parameter of `billed_cte`: requests with the number of their checkpoint."""
    return storable_json([{"i": i, **_row(each)} for i, each in requests])


def _row(request: BilledRequest) -> dict[str, Any]:
    tokens, cost = request.tokens, request.cost
    return {
        "step_index": request.step_index,
        "number": request.number,
        "agent_id": request.agent_id,
        "model": request.model,
        "provider": request.provider,
        "kind": request.kind.value,
        "input": tokens.input,
        "output": tokens.output,
        "cache_read": tokens.cache_read,
        "cache_write": tokens.cache_write,
        "reasoning": tokens.reasoning,
        "cost_micros": None if cost is None else cost.micros,
        "priced_by": None if cost is None else cost.priced_by,
    }


_OWNER = """(SELECT 1 AS i, r.tenant, r.thread_id, r.id AS run_id, :attempt::int AS attempt,
        r.root_run_id, r.started_by FROM runs r WHERE r.tenant = :tenant AND r.id = :run_id) o"""
_ADD = NamedSql(f"WITH {billed_cte(':billed', _OWNER)} SELECT")


async def add(
    connection: Connection,
    tenant: Tenant,
    run_id: RunId,
    attempt: int,
    requests: Sequence[BilledRequest],
) -> None:
    """Insert the rows of requests that one attempt of a run has made."""
    if requests:
        rows = billed_json((1, request) for request in requests)
        await connection.driver.execute(
            *_ADD(billed=rows, tenant=tenant, run_id=run_id, attempt=attempt)
        )


_day = func.to_char(func.timezone("UTC", usage.c.at), "YYYY-MM-DD")
_COLUMNS: dict[UsageGroup, ColumnElement[str]] = {
    UsageGroup.AGENT: usage.c.agent_id,
    UsageGroup.MODEL: usage.c.model,
    UsageGroup.PROVIDER: usage.c.provider,
    UsageGroup.SUBJECT: usage.c.subject,
    UsageGroup.THREAD: cast(usage.c.thread_id, TextType),
    UsageGroup.KIND: usage.c.kind,
    UsageGroup.DAY: _day,
}
_SUMS = (
    func.count().label("requests"),
    *(
        cast(func.coalesce(func.sum(column), 0), usage.c.input.type).label(name)
        for name, column in (
            ("input_tokens", usage.c.input),
            ("output_tokens", usage.c.output),
            ("cache_read_tokens", usage.c.cache_read),
            ("cache_write_tokens", usage.c.cache_write),
            ("reasoning_tokens", usage.c.reasoning),
        )
    ),
    cast(func.sum(usage.c.cost_micros), usage.c.input.type).label("cost_micros"),
    func.count().filter(usage.c.cost_micros.is_(None)).label("unpriced_requests"),
)
_BY_MODEL = (UsageGroup.PROVIDER, UsageGroup.MODEL)


async def by_model(
    connection: Connection, tenant: Tenant, thread_id: ThreadId
) -> tuple[UsageTotal, ...]:
    """The usage of a thread by model."""
    condition = and_(usage.c.tenant == tenant, usage.c.thread_id == thread_id)
    return await _totals(connection, _BY_MODEL, condition)


async def by_model_of_runs(
    connection: Connection, tenant: Tenant, records: Sequence[RunRecord]
) -> dict[RunId, tuple[UsageTotal, ...]]:
    """The usage of each run by model. Runs without a billed request are left out."""
    keys = [_COLUMNS[group].collate("C").label(f"by_{group}") for group in _BY_MODEL]
    statement = (
        select(*keys, usage.c.run_id, *_SUMS)
        .where(
            usage.c.tenant == tenant,
            usage.c.thread_id.in_({record.thread_id for record in records}),
            usage.c.run_id.in_([record.id for record in records]),
        )
        .group_by(usage.c.run_id, *keys)
        .order_by(*keys)
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
    """Sums by group, in the order of the groups' values. `after` has the values of the last sum before."""
    columns = {
        usage.c.agent_id: wanted.agent_id,
        usage.c.model: wanted.model,
        usage.c.subject: wanted.subject,
        usage.c.thread_id: wanted.thread_id,
        usage.c.root_run_id: wanted.root_run_id,
    }
    condition = and_(
        usage.c.tenant == tenant,
        usage.c.at >= wanted.begin,
        usage.c.at < wanted.end,
        *(column == value for column, value in columns.items() if value is not None),
    )
    if after is not None:
        keys = tuple_(*(_COLUMNS[group].collate("C") for group in groups))
        condition = and_(
            condition, keys > tuple_(*(literal(value).collate("C") for value in after))
        )
    found = await _totals(connection, groups, condition, limit=limit + 1)
    return Slice(found[:limit], has_more=len(found) > limit)


async def _totals(
    connection: Connection,
    groups: Sequence[UsageGroup],
    condition: ColumnElement[bool],
    limit: int | None = None,
) -> tuple[UsageTotal, ...]:
    keys = [_COLUMNS[group].collate("C").label(f"by_{group}") for group in groups]
    statement = select(*keys, *_SUMS).where(condition)
    if groups:
        statement = statement.group_by(*keys).order_by(*keys)
    rows = await connection.execute(statement.limit(limit))
    return tuple(_total(row, groups) for row in rows)


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


async def delete_old(connection: Connection, older_than: float, limit: int) -> int:
    """Delete rows of at least this age; returns their number."""
    age = func.now() - timedelta(seconds=older_than)
    key = usage.primary_key.columns
    old = select(*key).where(usage.c.at < age).limit(limit)
    return (await connection.execute(delete(usage).where(tuple_(*key).in_(old)))).rowcount
