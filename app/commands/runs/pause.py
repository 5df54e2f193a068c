"""Pause: a durable request that keeps a run from executing until it is resumed.

The request is stored in the run's row, under the run's lock:

    created, waiting    no worker claims the run, also when a delivery names it
    running             its next commit reads the request, and the step border after that suspends the run

A worker that takes over a run with a request suspends it at once. Decisions, messages and task results
for a paused run are stored and take effect after the resume; a cancel ends it at any time.
"""

from msgspec import Struct

from app.commands.idempotency import IdempotentCommand, begin_idempotent, store_response
from app.commands.runs.capabilities import require_supported
from app.context import ServiceContext
from app.domain.agents.capabilities import RootNeeds
from app.domain.errors import Conflict
from app.domain.events.run_events import PauseEnded, PauseRequested
from app.domain.ids import RunId
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import (
    Created,
    Done,
    Running,
    RunRecord,
    RunStatus,
    Waiting,
    WaitingReason,
)
from app.domain.tickets.tickets import can_resume
from app.events.transaction import Transaction
from app.queries.records import locked_run
from app.storage.postgres.database import Connection
from app.storage.queue import deliveries
from app.storage.runs import pauses, runs
from app.storage.runs.runs import RunKey
from app.storage.tickets import tickets


class Unpaused(Struct, frozen=True):
    run: RunRecord
    to_claim: RunKey | None = None
    """The run, if it can execute and no delivery was enqueued."""


async def pause(
    ctx: ServiceContext,
    principal: Principal,
    run_id: RunId,
    *,
    reason: str | None,
    once: IdempotentCommand[RunRecord] | None = None,
) -> RunRecord:
    """Request a pause; a run that has a request keeps it. Returns the run."""
    principal.require(Scope.RUNS_WRITE)
    async with ctx.events.transaction() as transaction:
        connection, tenant = transaction.connection, principal.tenant
        await begin_idempotent(connection, principal, once)
        record = await _lock(connection, principal, run_id)
        if record.status is RunStatus.RUNNING:
            require_supported(ctx, record.agent_id, RootNeeds(pause=True))
        by = principal.subject
        if await pauses.request(connection, tenant, run_id, by=by, reason=reason):
            transaction.emit(tenant, record.thread_id, run_id, PauseRequested(by, reason))
            record = await runs.get(connection, tenant, run_id) or record
        await store_response(connection, principal, once, record)
    return record


async def unpause(
    ctx: ServiceContext,
    principal: Principal,
    run_id: RunId,
    *,
    deliver: bool,
    once: IdempotentCommand[Unpaused] | None = None,
) -> Unpaused:
    """Remove a run's pause request; a run without one stays as it is.

    A caller with a free slot claims the run itself. Without `deliver` the sweeper finds a run whose claim
    failed.
    """
    principal.require(Scope.RUNS_WRITE)
    async with ctx.events.transaction() as transaction:
        connection, tenant = transaction.connection, principal.tenant
        await begin_idempotent(connection, principal, once)
        record = await _lock(connection, principal, run_id)
        key = None
        if await pauses.remove(connection, tenant, run_id):
            key = await _to_claim(transaction, record)
            if key is not None and deliver:
                await deliveries.enqueue(connection, key)
            ended = PauseEnded(principal.subject)
            transaction.emit(tenant, record.thread_id, run_id, ended)
            record = await runs.get(connection, tenant, run_id) or record
        answer = Unpaused(record, None if deliver else key)
        await store_response(connection, principal, once, answer)
    return answer


async def _lock(connection: Connection, principal: Principal, run_id: RunId) -> RunRecord:
    record = await locked_run(connection, principal.tenant, run_id)
    if record.is_done:
        raise Conflict(
            "run_finished",
            "The run has ended, and can be neither paused nor resumed. Start a run on its thread, or "
            "retry it if it failed.",
            thread_id=record.thread_id,
        )
    return record


async def _to_claim(transaction: Transaction, record: RunRecord) -> RunKey | None:
    """The run, if a worker can execute it once its pause is removed."""
    match record.state:
        case Created(admitted):
            is_ready = admitted
        case Waiting(WaitingReason.MANUAL_PAUSE):
            is_ready = True
        case Waiting(WaitingReason.BACKGROUND_TASKS):
            is_ready = record.unread_inputs > 0
        case Waiting(WaitingReason.AGENT_VERSION_UNAVAILABLE) | Running() | Done():
            # The sweeper looks for versions; a run that executes has nothing to wait for.
            is_ready = False
        case Waiting():
            is_ready = can_resume(
                await tickets.unsettled_of_run(transaction.connection, record.tenant, record.id)
            )
    if not is_ready:
        return None
    return RunKey(record.tenant, record.thread_id, record.id, record.attempt)
