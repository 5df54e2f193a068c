"""Explain a run's status: why it is there and what would change it. All rows are read in one snapshot."""

from datetime import datetime, timedelta

from msgspec import Struct

from app.context import ServiceContext
from app.domain.ids import RunId
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import (
    Created,
    Done,
    Running,
    RunRecord,
    Waiting,
)
from app.domain.runs.terminations import Failed
from app.domain.tickets.tickets import (
    Ticket,
)
from app.queries.explain_reasons import (
    ExplainReason,
    Facts,
    failed_followups_of,
    reasons_of,
    server_away,
)
from app.queries.mcp_servers import servers_away
from app.queries.records import found_run
from app.storage.children import child_runs
from app.storage.postgres.database import Connection
from app.storage.queue import deliveries, failed_followups
from app.storage.runs import diagnostics, runs
from app.storage.runs.diagnostics import Owner
from app.storage.runs.runs import RunKey
from app.storage.threads import threads
from app.storage.tickets import tickets


class ExplainedFailure(Struct, frozen=True):
    code: str
    detail: str


class Explanation(Struct, frozen=True, kw_only=True):
    run: RunRecord
    reasons: tuple[ExplainReason, ...]
    owner: Owner | None
    waiting_on: tuple[Ticket, ...]
    """Open tickets that block the run: its own, those of the open run before it, those of its children."""
    queue_position: int | None
    active_run_id: RunId | None
    """The open run that this run is queued behind."""
    next_attempt_at: datetime | None
    last_failure: ExplainedFailure | None
    descendants: tuple[RunRecord, ...] = ()
    """All child runs below it, each after its parent."""


async def explain(ctx: ServiceContext, principal: Principal, run_id: RunId) -> Explanation:
    """Explain the status of one run."""
    principal.require(Scope.RUNS_READ)
    async with ctx.database.transaction() as connection:
        await runs.use_one_snapshot(connection)
        record = await found_run(connection, principal.tenant, run_id)
        facts = await _facts(connection, record, ctx.heartbeat_timeout)
    away = await servers_away(ctx, record)
    return Explanation(
        run=record,
        reasons=(
            *reasons_of(facts),
            *(server_away(server, error) for server, error in away),
            *failed_followups_of(facts),
        ),
        owner=facts.owner,
        waiting_on=(*facts.open_tickets, *facts.open_events, *facts.tickets_of_descendants),
        descendants=facts.descendants,
        queue_position=facts.position,
        active_run_id=None if facts.occupant is None else facts.occupant.id,
        next_attempt_at=_next_attempt(facts),
        last_failure=_last_failure(record),
    )


async def _facts(connection: Connection, run: RunRecord, heartbeat_timeout: float) -> Facts:
    owner, position, occupant = None, None, None
    match run.state:
        case Running(worker) if worker is not None:
            owner = await diagnostics.owner(connection, worker, heartbeat_timeout=heartbeat_timeout)
        case Created(admitted) if not admitted:
            position = await diagnostics.queue_position(connection, run)
            thread = await threads.get(connection, run.tenant, run.thread_id)
            if thread is not None and thread.open_run_id is not None:
                occupant = await runs.get(connection, run.tenant, thread.open_run_id)
    unsettled = await tickets.unsettled_of_run(
        connection, run.tenant, run.id if occupant is None else occupant.id
    )
    descendants = await child_runs.descendants(connection, run.tenant, run.id)
    open_below = (
        []
        if run.is_done
        else await child_runs.open_tickets_of(
            connection, run.tenant, [child.id for child in descendants]
        )
    )
    return Facts(
        descendants=tuple(descendants),
        tickets_of_descendants=tuple(open_below),
        followups=tuple(await failed_followups.of_run(connection, run.tenant, run.id)),
        run=run,
        owner=owner,
        position=position,
        occupant=occupant,
        unsettled=tuple(unsettled),
        due_at=await deliveries.due_at(
            connection, RunKey(run.tenant, run.thread_id, run.id, run.attempt)
        ),
        workers=await diagnostics.living_workers(connection, heartbeat_timeout=heartbeat_timeout),
        heartbeat_timeout=heartbeat_timeout,
    )


def _next_attempt(facts: Facts) -> datetime | None:
    """When a worker will next claim the run, if that time is known."""
    if isinstance(facts.run.state, Waiting) and facts.run.state.until is not None:
        return facts.run.state.until
    if facts.due_at is not None or facts.owner is None or facts.owner.is_alive:
        return facts.due_at
    return facts.owner.heartbeat_at + timedelta(seconds=facts.heartbeat_timeout)


def _last_failure(run: RunRecord) -> ExplainedFailure | None:
    if isinstance(run.state, Done):
        end = run.state.termination
        return ExplainedFailure(end.code, end.detail) if isinstance(end, Failed) else None
    if run.losses:
        return ExplainedFailure(
            "worker_lost", f"{run.losses} workers were lost over it since its last checkpoint."
        )
    return None
