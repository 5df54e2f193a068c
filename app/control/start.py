"""Start a run: here and now when this process has room and the thread is free, otherwise in line."""

from dataclasses import dataclass

from app import telemetry
from app.control.cancel import announce
from app.control.desk import Desk
from app.control.first_record import created_event, record_as_written
from app.control.line import InLine, Joined, join_of_strangers, stand_in_line
from app.control.new_runs import (
    IfThreadMissing,
    StartRequest,
    agent_of_thread,
    check_names,
    new_run,
)
from app.control.once import Once, begin, settle
from app.domain.checkpoints import Said
from app.domain.errors import Conflict
from app.domain.events import RunStart
from app.domain.identity import run_identity
from app.domain.ids import Tenant, WorkerId
from app.domain.json_values import JsonObject
from app.domain.messages import Message
from app.domain.principals import Principal, Scope
from app.domain.runs import NewRun, Running, RunRecord, RunStatus
from app.events.frames import Batch
from app.events.outgoing import Transaction
from app.storage import hot_starts, runs
from app.storage.database import Connection
from app.storage.events import entry


@dataclass(frozen=True, slots=True)
class ToExecute:
    """The run was claimed by this process in the same commit, and its `run_start` is said: hand it to
    the worker."""

    record: RunRecord
    messages: tuple[Message, ...]
    first_message_seq: int
    event_seq: int
    thread_state: JsonObject


@dataclass(frozen=True, slots=True)
class Existing:
    """The same request was accepted before: this is its run."""

    record: RunRecord


async def start(
    desk: Desk,
    principal: Principal,
    request: StartRequest,
    *,
    worker: WorkerId | None,
    once: Once[RunRecord] | None = None,
) -> ToExecute | InLine | Joined | Existing:
    """Accept a run. With a `worker` that has a free slot, claim it in the same commit.

    Under a key it is claimed in the next one: the answer to repetitions is committed with the run.
    """
    principal.require(Scope.RUNS_WRITE)
    if once is not None:
        return await _start_once(desk, principal, request, once, deliver=worker is None)
    tenant = principal.tenant
    agent_id = request.agent_id
    if agent_id is None:
        async with desk.database.reading() as connection:
            agent_id = await agent_of_thread(connection, tenant, request)
    if agent_id not in desk.roster.specs:
        if (found := await _without_its_agent(desk, tenant, request)) is not None:
            return found
    run = new_run(desk, principal, request, agent_id)
    if request.frontend_tools:
        if (existing := await _look_for_existing(desk, tenant, request)) is not None:
            return existing
        await check_names(desk, run, request.frontend_tools)
    if worker is not None and request.if_thread_missing is IfThreadMissing.CREATE:
        if (started := await _start_here(desk, run, worker)) is not None:
            telemetry.runs_started.labels(run.agent_id).inc()
            return started
    if (existing := await _look_for_existing(desk, tenant, request)) is not None:
        return existing
    async with desk.outgoing.transaction() as transaction:
        started_or_taken = await stand_in_line(
            desk, principal, transaction, run, request, deliver=True
        )
    if started_or_taken is None:
        existing = await _look_for_existing(desk, tenant, request)
        if existing is None:
            raise RuntimeError(f"run {run.id} is taken and isn't there")
        return existing
    await _make_known(desk, principal, started_or_taken)
    return started_or_taken


async def _without_its_agent(
    desk: Desk, tenant: Tenant, request: StartRequest
) -> Existing | Joined | None:
    """What can be answered though the agent isn't known here: a repetition, and messages for a run that is
    at work elsewhere."""
    if (existing := await _look_for_existing(desk, tenant, request)) is not None:
        return existing
    async with desk.outgoing.transaction() as transaction:
        return await join_of_strangers(desk, transaction, tenant, request)


async def _start_once(
    desk: Desk,
    principal: Principal,
    request: StartRequest,
    once: Once[RunRecord],
    *,
    deliver: bool,
) -> InLine | Joined | Existing:
    """One transaction for the key, the run and the answer."""
    tenant = principal.tenant
    async with desk.outgoing.transaction() as transaction:
        connection = transaction.connection
        await begin(connection, principal, once)
        started: InLine | Joined | Existing | None = await _existing(connection, tenant, request)
        if started is None:
            started = await _accept_in(desk, principal, transaction, request, deliver=deliver)
        if started is None:
            started = await _existing(connection, tenant, request)
        if started is None:
            raise RuntimeError(f"run {request.run_id} is taken and isn't there")
        await settle(connection, principal, once, started.record)
    await _make_known(desk, principal, started)
    return started


async def _accept_in(
    desk: Desk,
    principal: Principal,
    transaction: Transaction,
    request: StartRequest,
    *,
    deliver: bool,
) -> InLine | Joined | None:
    connection, tenant = transaction.connection, principal.tenant
    agent_id = request.agent_id or await agent_of_thread(connection, tenant, request)
    if agent_id not in desk.roster.specs:
        joined = await join_of_strangers(desk, transaction, tenant, request)
        if joined is not None:
            return joined
    run = new_run(desk, principal, request, agent_id)
    if request.frontend_tools:
        await check_names(desk, run, request.frontend_tools)
    return await stand_in_line(desk, principal, transaction, run, request, deliver=deliver)


async def _make_known(
    desk: Desk, principal: Principal, started: InLine | Joined | Existing
) -> None:
    if isinstance(started, InLine):
        await announce(desk, principal, started.interrupted)
        telemetry.runs_started.labels(started.record.agent_id).inc()


async def _start_here(desk: Desk, run: NewRun, worker: WorkerId) -> ToExecute | None:
    now = desk.clock.now()
    asked_for = record_as_written(run, Running(worker), now, events_from=0, first_seq=None)
    started = RunStart(run_identity(asked_for), run.lineage.parent_run_id)
    said = [
        entry(Said(event, None))
        for event in (created_event(run, RunStatus.RUNNING, position=0), started)
    ]
    admitted = await hot_starts.admit(desk.database.hot, run, worker, said, now)
    if admitted is None:
        return None
    first = admitted.first_message_seq
    desk.publisher.publish(Batch(run.tenant, run.thread_id, run.id, admitted.event_seq, said, now))
    record = record_as_written(run, Running(worker), now, admitted.event_seq, first_seq=first)
    return ToExecute(record, run.messages, first, admitted.event_seq, admitted.thread_state)


async def _look_for_existing(desk: Desk, tenant: Tenant, request: StartRequest) -> Existing | None:
    if request.run_id is None:
        return None
    async with desk.database.reading() as connection:
        return await _existing(connection, tenant, request)


async def _existing(
    connection: Connection, tenant: Tenant, request: StartRequest
) -> Existing | None:
    """The run that has this id already, if it was started by the same request."""
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
    return None if record is None else Existing(record)
