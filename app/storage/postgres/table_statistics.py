"""Statistics of tables that were empty when they were last analysed.

A connection plans a frequent statement once. For an empty table all indexes cost the same, so Postgres may search
a key in an index that has its columns elsewhere, and read all of it. New statistics make each connection plan again.
Autovacuum writes them too, but only once a minute.
"""

from app.storage.postgres.database import RawPool

MIN_ROWS = 50

_FILLED = """
SELECT c.oid::regclass::text AS name
FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.reltuples < $1
    AND pg_stat_get_live_tuples(c.oid) >= $1 AND pg_has_role(c.relowner, 'USAGE')
"""


async def analyze_filled(pool: RawPool) -> list[str]:
    """Analyse the tables that have rows now, and that the statistics show as empty. Returns their names."""
    found = await pool.fetch(_FILLED, MIN_ROWS)
    names = [row["name"] for row in found]
    if names:
        await pool.execute(f"ANALYZE (SKIP_LOCKED) {', '.join(names)}")
    return names
