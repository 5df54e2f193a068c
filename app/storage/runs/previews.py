"""The beginning of what each run of a list was asked."""

from collections.abc import Sequence

from sqlalchemy import text

from app.domain.ids import RunId, Tenant
from app.domain.runs.runs import RunRecord
from app.storage.postgres.database import Connection

PREVIEW_CHARACTERS = 200

# A queued run has no message in the log yet: its first input has the text.
_PREVIEWS = text("""
SELECT r.id, left((
    SELECT string_agg(part ->> 'text', ' ')
    FROM jsonb_array_elements(coalesce(m.content, i.message -> 'content')) AS part
    WHERE part ->> 'type' = 'text'), :characters) AS preview
FROM unnest(CAST(:ids AS uuid[]), CAST(:threads AS uuid[]), CAST(:seqs AS bigint[])) AS r(id, thread_id, seq)
LEFT JOIN messages m ON m.tenant = :tenant AND m.thread_id = r.thread_id AND m.seq = r.seq
LEFT JOIN LATERAL (
    SELECT message FROM inputs
    WHERE tenant = :tenant AND run_id = r.id AND r.seq IS NULL ORDER BY position LIMIT 1
) AS i ON true
""")


async def previews(
    connection: Connection, tenant: Tenant, runs: Sequence[RunRecord]
) -> dict[RunId, str]:
    """The beginning of the first message that each run was started with."""
    given = {
        "tenant": tenant,
        "ids": [run.id for run in runs],
        "threads": [run.thread_id for run in runs],
        "seqs": [_first_seq(run) for run in runs],
        "characters": PREVIEW_CHARACTERS,
    }
    rows = (await connection.execute(_PREVIEWS, given)).all()
    return {RunId(str(row["id"])): row["preview"] or "" for row in rows}


def _first_seq(run: RunRecord) -> int | None:
    given = None if run.input is None else run.input.range
    return None if given is None else given.from_seq
