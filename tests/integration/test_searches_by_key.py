"""Frequent statements search a run by its key, also where a partial index is smaller."""

import pytest

from app.storage.checkpoints import decide_and_claim
from app.storage.checkpoints.statement import _Parts, _statement
from app.storage.postgres.database import Database
from app.storage.postgres.named_parameters import NamedSql
from tests.support.stored_runs import checkpoint_of, running

pytestmark = pytest.mark.anyio

_RUNS = 100
_FINISH = """
UPDATE runs SET status = 'done', termination = '{"type": "natural_end"}', finished_at = now(), owner = NULL
WHERE tenant = $1 AND id = $2
"""


async def plan_of(database: Database, statement: NamedSql) -> str:
    """The plan that a connection keeps for any arguments."""
    nulls = ", ".join(["NULL"] * len(statement._names))
    async with database.pool.acquire() as connection:
        await connection.execute(f"PREPARE searched AS {statement.text}")
        try:
            rows = await connection.fetch(f"EXPLAIN EXECUTE searched ({nulls})")
        finally:
            await connection.execute("DEALLOCATE searched")
    return "\n".join(row[0] for row in rows)


async def test_a_run_is_searched_by_its_key_among_many_finished_ones(database: Database) -> None:
    """Postgres would read all unfinished runs, of which the statistics show few."""
    for _ in range(_RUNS):
        run = await running(database.pool)
        await database.pool.execute(_FINISH, run.tenant, run.id)
    run = await running(database.pool)
    await database.pool.execute("ANALYZE runs")
    checkpoint = _statement(_Parts.of([checkpoint_of(run)], is_locked=False))
    for statement in (checkpoint, decide_and_claim._READ, decide_and_claim._DECIDE_AND_CLAIM):
        plan = await plan_of(database, statement)
        assert "runs_pkey" in plan
        assert "runs_unfinished" not in plan
        assert "runs_waiting_for" not in plan
