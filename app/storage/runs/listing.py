"""Pages of runs, by the filters of a list."""

from collections.abc import Iterator

from sqlalchemy import ColumnElement, TextClause, and_, not_, or_, select, text

from app.domain.ids import RunId, Tenant
from app.domain.runs.runs import RunFilter, RunRecord, RunStatus
from app.domain.runs.terminations import TYPES_OF, Outcome
from app.domain.slices import PageRequest, Slice
from app.storage.codec import run_of
from app.storage.page_rows import page_of
from app.storage.postgres.database import Connection
from app.storage.tables import runs


def _conditions(wanted: RunFilter) -> Iterator[ColumnElement[bool] | TextClause]:
    equal = {
        runs.c.thread_id: wanted.thread_id,
        runs.c.parent_run_id: wanted.parent_run_id,
        runs.c.agent_id: wanted.agent_id,
        runs.c.status: wanted.status,
        runs.c.waiting_reason: wanted.waiting_reason,
        runs.c.termination["code"].astext: wanted.termination_code,
    }
    yield from (column == str(value) for column, value in equal.items() if value is not None)
    if wanted.root_run_id is not None:
        yield in_tree(wanted.root_run_id)
    if wanted.ids is not None:
        yield runs.c.id.in_(wanted.ids)
    if wanted.statuses:
        yield runs.c.status.in_([status.value for status in wanted.statuses])
    one_of = wanted.statuses if wanted.status is None else (wanted.status,)
    if one_of and RunStatus.DONE not in one_of:
        # Lets Postgres use the partial index `runs_unfinished`.
        yield text("runs.status <> 'done'")
    if wanted.paused is not None:
        has_request = runs.c.pause_requested_at.is_not(None)
        is_paused = and_(has_request, runs.c.status != RunStatus.DONE.value)
        yield is_paused if wanted.paused else not_(is_paused)
    if wanted.outcome is not None:
        yield from _has_outcome(wanted.outcome)
    if wanted.metadata:
        # The second condition lets Postgres use the partial index `runs_metadata`.
        yield runs.c.metadata.contains(dict(wanted.metadata))
        yield text("runs.metadata <> '{}'")


def in_tree(root: RunId) -> ColumnElement[bool]:
    """Whether a run is this root or below it. In this form Postgres can use the partial index `runs_below_roots`."""
    below = and_(runs.c.root_run_id == root, text("runs.parent_run_id IS NOT NULL"))
    return or_(runs.c.id == root, below)


def _has_outcome(wanted: Outcome) -> Iterator[ColumnElement[bool] | TextClause]:
    ended_as = runs.c.termination["type"].astext
    yield ended_as.in_(TYPES_OF[wanted])
    if wanted is not Outcome.SUCCEEDED:
        # Lets Postgres use the partial index `runs_without_success`.
        yield text("(runs.termination ->> 'type') NOT IN ('natural_end', 'behavior_requested')")


async def page(
    connection: Connection,
    tenant: Tenant,
    wanted: RunFilter,
    requested: PageRequest,
) -> Slice[RunRecord]:
    """Runs by creation. Never loads a message body."""
    statement = select(runs).where(runs.c.tenant == tenant, *_conditions(wanted))
    return await page_of(connection, statement, run_of, requested)
