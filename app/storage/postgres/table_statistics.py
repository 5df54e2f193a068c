"""Statistics of tables that were empty when they were last analysed.

A connection plans a frequent statement once. For an empty table all indexes cost the same, so Postgres may search
a key in an index that has its columns elsewhere, and read all of it. New statistics make each connection plan again.
Autovacuum writes them too, but only once a minute.
"""

from msgspec import Struct

from app.storage.postgres.database import RawPool

MIN_ROWS = 50

OF_EACH_RUN = frozenset({"threads", "runs", "messages", "events", "event_heads"})
_OF_DECISIONS = frozenset({"tickets", "decisions"})
_FEW_ROWS = """
SELECT c.oid::regclass::text AS name, pg_stat_get_live_tuples(c.oid) >= $1 AS has_rows
FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.reltuples < $1
    AND pg_has_role(c.relowner, 'USAGE')
"""


class Analyzed(Struct, frozen=True):
    """The tables that were analysed, and those that frequent statements search and that the statistics show as empty."""

    now: tuple[str, ...]
    left: frozenset[str]

    @property
    def has_all_of_each_run(self) -> bool:
        """Whether each table that all runs write has statistics."""
        return not self.left & OF_EACH_RUN


async def analyze_filled(pool: RawPool) -> Analyzed:
    """Analyse the tables that have rows now, and that the statistics show as empty."""
    found = await pool.fetch(_FEW_ROWS, MIN_ROWS)
    names = tuple(row["name"] for row in found if row["has_rows"])
    if names:
        await pool.execute(f"ANALYZE (SKIP_LOCKED) {', '.join(names)}")
    left = {row["name"] for row in found if not row["has_rows"]}
    return Analyzed(names, (OF_EACH_RUN | _OF_DECISIONS) & left)
