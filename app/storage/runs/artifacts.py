"""Pages of a run's artifacts: the files of its tools, then what a remote agent has made, which the run's state keeps."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import case, func, literal, null, select, true, union_all

from app.domain.agents.backend_results import OUTPUT_KEY, Artifact, SavedBytes
from app.domain.files.files import MAX_SAVED_FILES
from app.domain.ids import RunId, Tenant
from app.domain.slices import PageRequest, Slice
from app.storage.codec import Row
from app.storage.page_rows import page_of
from app.storage.postgres.database import Connection
from app.storage.tables import files, runs, saved_files


async def page(
    connection: Connection, tenant: Tenant, run_id: RunId, requested: PageRequest
) -> Slice[tuple[int, Artifact]]:
    """Artifacts by their numbers. Those of a remote agent are numbered after all files that a run may have."""
    stored = runs.c.state["extensions"][OUTPUT_KEY]["artifacts"]
    entry = (
        func.jsonb_array_elements(stored)
        .table_valued("artifact", with_ordinality="number", name="entry")
        .render_derived()
    )
    of_remote = (
        select(
            (entry.c.number + MAX_SAVED_FILES).label("number"),
            entry.c.artifact,
            case(
                (
                    files.c.id.is_not(None),
                    func.jsonb_build_object(
                        *(literal("size"), files.c.size), *(literal("sha256"), files.c.sha256)
                    ),
                ),
                else_=null(),
            ).label("saved"),
        )
        .select_from(runs)
        .join(entry, true())
        .outerjoin(
            files,
            (files.c.tenant == tenant)
            & (files.c.id == entry.c.artifact.op("->>")("file_id").cast(files.c.id.type)),
        )
        .where(runs.c.tenant == tenant, runs.c.id == run_id)
    )
    of_tools = (
        select(
            saved_files.c.number,
            func.jsonb_build_object(
                *(literal("id"), files.c.id),
                *(literal("name"), files.c.name),
                *(literal("media_type"), files.c.media_type),
            ).label("artifact"),
            func.jsonb_build_object(
                *(literal("size"), files.c.size),
                *(literal("sha256"), files.c.sha256),
                *(literal("call_id"), saved_files.c.call_id),
            ).label("saved"),
        )
        .join_from(
            saved_files,
            files,
            (files.c.tenant == saved_files.c.tenant) & (files.c.id == saved_files.c.file_id),
        )
        .where(saved_files.c.tenant == tenant, saved_files.c.run_id == run_id)
    )
    both = union_all(of_tools, of_remote).subquery("both")
    statement = select(both.c.number, both.c.artifact, both.c.saved)
    return await page_of(connection, statement, _numbered, requested, by=("number",))


def _numbered(row: Row) -> tuple[int, Artifact]:
    artifact: Mapping[str, Any] = row["artifact"]
    saved: Mapping[str, Any] | None = row["saved"]
    return row["number"], Artifact(**artifact, saved=None if saved is None else SavedBytes(**saved))
