"""Start a run: in one commit with its claim if this process has a free slot, otherwise enqueued."""

from msgspec import Struct

from app import telemetry
from app.commands.files.inline_media import with_stored_media
from app.commands.idempotency import IdempotentCommand, begin_idempotent, store_response
from app.commands.runs.cancel import announce_cancel
from app.commands.runs.created_record import created_event, record_as_written
from app.commands.runs.enqueue import AcceptedRun, enqueue_or_join
from app.commands.runs.new_run import (
    IfThreadMissing,
    StartRequest,
    agent_of_thread,
    check_names,
    new_run,
)
from app.commands.runs.require_prices import require_prices
from app.context import ServiceContext
from app.domain.checkpoints import PendingEvent
from app.domain.claims.claimed_run import ClaimedRun
from app.domain.errors import Conflict
from app.domain.events.run_events import RunStart
from app.domain.files.files import media_of
from app.domain.ids import Tenant, WorkerId
from app.domain.principals import Principal, Scope
from app.domain.runs.identity import run_identity
from app.domain.runs.runs import NewRun, Running, RunRecord, RunStatus
from app.domain.structs import replace
from app.domain.threads.messages import LoggedMessage
from app.events.sse_encoding import EventBatch
from app.storage.events.event_log import entry
from app.storage.postgres.database import Connection
from app.storage.runs import claims, runs
from app.storage.runs.runs import RunKey


class StartedRun(Struct, frozen=True):
    """The run that answers a start: a new one, the thread's open run that got the messages, or the run
    of an earlier identical request."""

    record: RunRecord
    claimed: ClaimedRun | None = None
    """Set if the run was claimed in the same commit: the caller executes it."""
    to_claim: RunKey | None = None
    """Set if the run can execute and no delivery was enqueued: the caller claims it."""


async def start_run(
    ctx: ServiceContext,
    principal: Principal,
    request: StartRequest,
    *,
    worker: WorkerId | None,
    once: IdempotentCommand[RunRecord] | None = None,
) -> StartedRun:
    """Accept a run. `worker` has a free slot for it.

    With an Idempotency-Key the run isn't claimed in the same commit: the key, the run and the answer are
    committed first.
    """
    principal.require(Scope.RUNS_WRITE)
    if request.context is not None:
        principal.require(Scope.RUNS_CONTEXT)
    async with with_stored_media(ctx, principal, request.messages) as messages:
        if messages is not request.messages:
            request = replace(request, messages=messages)
        return await _start(ctx, principal, request, worker=worker, once=once)


async def _start(
    ctx: ServiceContext,
    principal: Principal,
    request: StartRequest,
    *,
    worker: WorkerId | None,
    once: IdempotentCommand[RunRecord] | None,
) -> StartedRun:
    if worker is not None and once is None:
        claimed = await _create_and_claim(ctx, principal, request, worker)
        if claimed is not None:
            return StartedRun(claimed.record, claimed=claimed)
    async with ctx.events.transaction() as transaction:
        connection = transaction.connection
        await begin_idempotent(connection, principal, once)
        accepted = (
            await _started_before(connection, principal.tenant, request)
            or await enqueue_or_join(ctx, principal, transaction, request, deliver=worker is None)
            # The same request has been committed meanwhile.
            or await _started_before(connection, principal.tenant, request)
        )
        if accepted is None:
            raise RuntimeError(f"run {request.run_id} is taken and can't be found")
        await store_response(connection, principal, once, accepted.record)
    await announce_cancel(ctx, accepted.interrupted)
    if accepted.is_new:
        telemetry.runs_started.labels(accepted.record.agent_id).inc()
    return StartedRun(accepted.record, to_claim=accepted.to_claim)


async def _create_and_claim(
    ctx: ServiceContext, principal: Principal, request: StartRequest, worker: WorkerId
) -> ClaimedRun | None:
    """Create and claim the run in one commit; None if the thread is occupied, the run's id is taken or
    the request needs more checks."""
    if request.if_thread_missing is not IfThreadMissing.CREATE:
        return None
    if any(media_of(request.messages)) or request.replaces is not None:
        # The transaction of the other way checks the files, and what is replaced.
        return None
    if request.frontend_tools and request.run_id is not None:
        # A repetition is answered before its tools are checked.
        return None
    agent_id = request.agent_id
    if agent_id is None:
        async with ctx.database.reading() as connection:
            agent_id = await agent_of_thread(connection, principal.tenant, request)
    if agent_id not in ctx.agents.specs:
        return None
    run = new_run(ctx, principal, request, agent_id)
    await check_names(ctx, run, request)
    await require_prices(ctx, run)
    claimed = await _claim(ctx, run, worker)
    if claimed is not None:
        telemetry.runs_started.labels(run.agent_id).inc()
    return claimed


async def _claim(ctx: ServiceContext, run: NewRun, worker: WorkerId) -> ClaimedRun | None:
    now = ctx.clock.now()
    unwritten = record_as_written(run, Running(worker), now, events_from=0, first_seq=None)
    run_start = RunStart(run_identity(unwritten), run.lineage.parent_run_id)
    events = [
        entry(PendingEvent(event, None))
        for event in (created_event(run, RunStatus.RUNNING, position=0), run_start)
    ]
    admitted = await claims.admit(ctx.database.pool, run, worker, events, now)
    if admitted is None:
        return None
    ctx.publisher.publish(
        EventBatch(run.tenant, run.thread_id, run.id, admitted.event_seq, events, now)
    )
    if admitted.thread_key != run.thread_key:
        run = replace(run, thread_key=admitted.thread_key)
    first = admitted.first_message_seq
    log = tuple(LoggedMessage(first + index, each) for index, each in enumerate(run.messages))
    return ClaimedRun(
        record=record_as_written(run, Running(worker), now, admitted.event_seq, first_seq=first),
        next_seq=first + len(log),
        previous_state=RunStatus.CREATED,
        log=log if first == 1 else None,
        is_announced=True,
        thread_state=admitted.thread_state,
    )


async def _started_before(
    connection: Connection, tenant: Tenant, request: StartRequest
) -> AcceptedRun | None:
    """The run with the requested id, if the same request started it."""
    run_id = request.run_id
    if run_id is None:
        return None
    digest = await runs.request_digest(connection, tenant, run_id)
    if digest is None:
        return None
    if digest != request.digest:
        raise Conflict(
            "run_id_conflict",
            f"Run {run_id} was started with another request. Use a new run_id.",
            run_id=run_id,
        )
    record = await runs.get(connection, tenant, run_id)
    return None if record is None else AcceptedRun(record, is_new=False)
