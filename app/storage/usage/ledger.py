"""The usage ledger: one row for each request to a model that its provider bills.

A checkpoint writes its rows in its own statement. The rows stay when their thread is deleted.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func, select, tuple_

from app.domain.ids import RunId, Tenant
from app.domain.usage.billed_requests import BilledRequest
from app.storage.codec import storable_json
from app.storage.postgres.database import Connection
from app.storage.postgres.named_parameters import NamedSql
from app.storage.tables import usage
from app.storage.usage import sums

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


async def delete_old(connection: Connection, older_than: float, limit: int) -> int:
    """Delete rows of at least this age, and all sums that may have one; returns the number of rows."""
    await sums.forget_old(connection, older_than)
    age = func.now() - timedelta(seconds=older_than)
    key = usage.primary_key.columns
    old = select(*key).where(usage.c.at < age).limit(limit)
    return (await connection.execute(delete(usage).where(tuple_(*key).in_(old)))).rowcount
