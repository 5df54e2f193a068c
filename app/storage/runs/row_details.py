"""What a table of runs shows besides their records: what each was asked, and how many runs it has started."""

from collections.abc import Sequence

from msgspec import Struct
from sqlalchemy import text

from app.domain.ids import RunId, Tenant
from app.domain.runs.runs import RunRecord
from app.storage.postgres.database import Connection

PREVIEW_CHARACTERS = 200
MAX_CHILDREN = 1_000
"""Up to this number, the runs below a run are counted."""

# A queued run has no message in the log yet: its first input has the text.
_DETAILS = text("""
SELECT r.id, left((
    SELECT string_agg(part ->> 'text', ' ')
    FROM jsonb_array_elements(coalesce(m.content, i.message -> 'content')) AS part
    WHERE part ->> 'type' = 'text'), :characters) AS preview, (
    SELECT count(*) FROM (
        SELECT FROM runs AS c WHERE c.tenant = :tenant AND c.parent_run_id = r.id LIMIT :children
    ) AS child) AS children
FROM unnest(CAST(:ids AS uuid[]), CAST(:threads AS uuid[]), CAST(:seqs AS bigint[])) AS r(id, thread_id, seq)
LEFT JOIN messages m ON m.tenant = :tenant AND m.thread_id = r.thread_id AND m.seq = r.seq
LEFT JOIN LATERAL (
    SELECT message FROM inputs
    WHERE tenant = :tenant AND run_id = r.id AND r.seq IS NULL ORDER BY position LIMIT 1
) AS i ON true
""")


class RowDetails(Struct, frozen=True):
    """The beginning of the first message that a run was started with, and its number of child runs."""

    preview: str = ""
    children: int = 0


async def details_of(
    connection: Connection, tenant: Tenant, runs: Sequence[RunRecord]
) -> dict[RunId, RowDetails]:
    given = {
        "tenant": tenant,
        "ids": [run.id for run in runs],
        "threads": [run.thread_id for run in runs],
        "seqs": [_first_seq(run) for run in runs],
        "characters": PREVIEW_CHARACTERS,
        "children": MAX_CHILDREN,
    }
    rows = (await connection.execute(_DETAILS, given)).all()
    return {
        RunId(str(row["id"])): RowDetails(row["preview"] or "", row["children"]) for row in rows
    }


def _first_seq(run: RunRecord) -> int | None:
    given = None if run.input is None else run.input.range
    return None if given is None else given.from_seq
