"""Start a run: here and now when this process has room and the thread is free, otherwise in line."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from app import telemetry
from app.clock import new_id
from app.control.cancel import Interruption, announce
from app.control.capabilities import require_supported
from app.control.desk import Desk
from app.control.interrupt import interrupt
from app.control.once import Once, begin, settle
from app.control.reading import thread_not_found
from app.control.steer import obstacle, steer
from app.domain.backends import RootNeeds
from app.domain.checkpoints import Said
from app.domain.errors import Conflict, Invalid, TooMany
from app.domain.events import RunCreated, RunStart
from app.domain.identity import run_identity
from app.domain.ids import AgentId, InputId, RunId, Tenant, ThreadId, WorkerId
from app.domain.inference import NO_OPTIONS, InferenceOptions, options_to_json
from app.domain.json_values import JsonObject
from app.domain.messages import Message, MessageRange
from app.domain.principals import Principal, Scope
from app.domain.runs import (
    Created,
    Lineage,
    MessageInput,
    MessageOutput,
    NewRun,
    Running,
    RunRecord,
    RunState,
    RunStatus,
    Usage,
)
from app.domain.threads import Thread
from app.events.frames import Batch
from app.events.outgoing import Transaction
from app.runtime.agent import Unresolvable
from app.runtime.handoff import agent_at_work
from app.storage import deliveries, events, hot, inputs, runs, threads
from app.storage.database import Connection
from app.storage.events import entry
from app.storage.runs import RunKey
from app.tools.frontend import IN_REQUEST


class OnActive(StrEnum):
    """What to do when the thread is occupied."""

    ENQUEUE = "enqueue"
    REJECT = "reject"
    INTERRUPT = "interrupt"
    """The run that is there is cancelled; the new one stands in line behind those that do already."""
    STEER = "steer"
    """The messages go to the run that is there."""


class IfThreadMissing(StrEnum):
    CREATE = "create"
    REJECT = "reject"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """A start as a client asked for it; `digest` tells a repetition from another request.

    Without an agent, the thread goes on with the one that was last at work on it.
    """

    agent_id: AgentId | None
    thread_id: ThreadId
    run_id: RunId | None
    messages: tuple[Message, ...]
    on_active: OnActive
    if_thread_missing: IfThreadMissing
    metadata: JsonObject
    digest: str
    traceparent: str | None = None
    ticket_policy: JsonObject | None = None
    """How long this run's tickets wait, and what happens then."""
    overrides: InferenceOptions = NO_OPTIONS
    frontend_tools: tuple[JsonObject, ...] = ()
    """What the client can do itself: name, description and parameters of each."""


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
class InLine:
    """The run is accepted; a delivery or the end of another run will move it."""

    record: RunRecord
    to_claim: RunKey | None = None
    """The run, when it can go on and no delivery says so."""
    input_ids: tuple[InputId, ...] = ()
    interrupted: Interruption | None = None
    """The run that makes way for it, when its worker should hear of that."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The messages went to the run that occupies the thread: this is it."""

    record: RunRecord
    input_ids: tuple[InputId, ...]


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
    if request.run_id is not None and agent_id not in desk.roster.specs:
        # A repetition is answered as before, also when its agent is gone.
        if (existing := await _look_for_existing(desk, tenant, request)) is not None:
            return existing
    run = new_run(desk, principal, request, agent_id)
    if request.frontend_tools:
        if (existing := await _look_for_existing(desk, tenant, request)) is not None:
            return existing
        await _check_names(desk, run, request.frontend_tools)
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
            agent_id = request.agent_id or await agent_of_thread(connection, tenant, request)
            run = new_run(desk, principal, request, agent_id)
            if request.frontend_tools:
                await _check_names(desk, run, request.frontend_tools)
            started = await stand_in_line(
                desk, principal, transaction, run, request, deliver=deliver
            )
        if started is None:
            started = await _existing(connection, tenant, request)
        if started is None:
            raise RuntimeError(f"run {request.run_id} is taken and isn't there")
        await settle(connection, principal, once, started.record)
    await _make_known(desk, principal, started)
    return started


async def _make_known(
    desk: Desk, principal: Principal, started: InLine | Joined | Existing
) -> None:
    if isinstance(started, InLine):
        await announce(desk, principal, started.interrupted)
        telemetry.runs_started.labels(started.record.agent_id).inc()


async def agent_of_thread(connection: Connection, tenant: Tenant, request: StartRequest) -> AgentId:
    thread = await threads.get(connection, tenant, request.thread_id)
    if thread is not None and thread.latest_run_id is not None:
        at_work = agent_at_work(await threads.state(connection, tenant, thread.id))
        if at_work is not None:
            return at_work[0]
        latest = await runs.get(connection, tenant, RunId(thread.latest_run_id))
        if latest is not None:
            return latest.agent_id
    raise Invalid(
        "agent_required", "No agent was at work on this thread yet: say which one with agent_id."
    )


def new_run(desk: Desk, principal: Principal, request: StartRequest, agent_id: AgentId) -> NewRun:
    run_id = request.run_id or RunId(new_id())
    version = desk.roster.version(agent_id)
    needs = RootNeeds(
        overrides=request.overrides != NO_OPTIONS, frontend_tools=bool(request.frontend_tools)
    )
    require_supported(desk, agent_id, needs)
    return NewRun(
        tenant=principal.tenant,
        id=run_id,
        thread_id=request.thread_id,
        agent_id=agent_id,
        agent_version=version,
        messages=request.messages,
        request={
            "origin": "User",
            "input_message_ids": [message.id for message in request.messages],
            "input_message_count": len(request.messages),
            **({} if request.ticket_policy is None else {"ticket_policy": request.ticket_policy}),
            **_overrides(request),
            **({IN_REQUEST: list(request.frontend_tools)} if request.frontend_tools else {}),
        },
        request_digest=request.digest,
        metadata=request.metadata,
        started_by=principal.subject,
        lineage=Lineage(run_id),
        traceparent=request.traceparent,
    )


def _overrides(request: StartRequest) -> JsonObject:
    if request.overrides == NO_OPTIONS:
        return {}
    return {"overrides": options_to_json(request.overrides)}


async def _check_names(desk: Desk, run: NewRun, offered: Sequence[JsonObject]) -> None:
    """A client's tool must not stand for one of the agent's own."""
    agent = await desk.roster.resolve(run.tenant, run.agent_id, run.agent_version)
    own = () if isinstance(agent, Unresolvable) else agent.tools
    taken = sorted({each["name"] for each in offered} & set(own))
    if taken:
        raise Invalid(
            "frontend_tool_taken",
            f"The agent has tools of its own called {', '.join(taken)}. Rename the frontend tools.",
            names=taken,
        )


async def _start_here(desk: Desk, run: NewRun, worker: WorkerId) -> ToExecute | None:
    now = desk.clock.now()
    asked_for = _record(run, Running(worker), now, events_from=0, first_seq=None)
    started = RunStart(run_identity(asked_for), run.lineage.parent_run_id)
    said = [
        entry(Said(event, None))
        for event in (_created(run, RunStatus.RUNNING, position=0), started)
    ]
    admitted = await hot.admit(desk.database.hot, run, worker, said, now)
    if admitted is None:
        return None
    first = admitted.first_message_seq
    desk.publisher.publish(Batch(run.tenant, run.thread_id, run.id, admitted.event_seq, said, now))
    record = _record(run, Running(worker), now, admitted.event_seq, first_seq=first)
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


async def stand_in_line(
    desk: Desk,
    principal: Principal,
    transaction: Transaction,
    run: NewRun,
    request: StartRequest,
    *,
    deliver: bool,
) -> InLine | Joined | None:
    """Create the run behind whatever occupies its thread, or join that; None when its id was taken
    meanwhile."""
    connection = transaction.connection
    thread = await threads.lock(connection, run.tenant, run.thread_id)
    if thread is None:
        if request.if_thread_missing is IfThreadMissing.REJECT:
            raise thread_not_found(run.thread_id)
        await threads.create(connection, run.tenant, run.thread_id)
        thread = await threads.lock(connection, run.tenant, run.thread_id)
        if thread is None:
            raise RuntimeError(f"thread {run.thread_id} can't be created")
    if thread.is_occupied and request.on_active is OnActive.REJECT:
        raise Conflict(
            "thread_busy",
            "Another run occupies this thread. Wait for it, cancel it, or start with "
            'on_active "enqueue".',
            active_run_id=thread.open_run_id,
        )
    if thread.open_run_id is not None and request.on_active is OnActive.STEER:
        joined = await _join(transaction, run, thread.open_run_id)
        if joined is not None:
            return joined
    line = await queue_up(desk, transaction, thread, run, deliver=deliver)
    if line is None or request.on_active is not OnActive.INTERRUPT:
        return line
    interrupted = await interrupt(transaction, principal, thread, run.id)
    record = await runs.get(connection, run.tenant, run.id)
    return replace(line, record=record or line.record, interrupted=interrupted)


async def _join(transaction: Transaction, run: NewRun, open_run_id: RunId) -> Joined | None:
    """Let the run that is there have the new one's messages; None when it reads nothing more."""
    record = await runs.lock(transaction.connection, run.tenant, open_run_id)
    if record is None or obstacle(record) is not None:
        return None
    return Joined(record, await steer(transaction, record, run.messages))


async def queue_up(
    desk: Desk, transaction: Transaction, thread: Thread, run: NewRun, *, deliver: bool
) -> InLine | None:
    """Create a run that nobody executes yet on a thread that is locked; None when its id is taken.

    Whoever has room for the run itself needs no delivery; should it fail to claim it, the sweeper will.
    """
    connection = transaction.connection
    occupied = thread.is_occupied
    if thread.queue_length >= desk.limits.queue_per_thread:
        raise TooMany(
            "queue_full",
            f"{thread.queue_length} runs queue for this thread already; try again when some are done.",
        )
    events_from = await events.next_seq(connection, run.tenant, run.thread_id)
    position = thread.queue_length + 1 if occupied else 0
    if not await runs.insert_created(
        connection, run, admitted=not occupied, events_from=events_from, at=transaction.now
    ):
        return None
    waiting = [(InputId(new_id()), message) for message in run.messages]
    if waiting:
        await inputs.queue(connection, run.tenant, run.thread_id, run.id, waiting)
    changed = {"queue_length": thread.queue_length + 1} if occupied else {"open_run_id": run.id}
    await threads.change(
        connection, run.tenant, run.thread_id, {**changed, "latest_run_id": run.id}
    )
    key = RunKey(run.tenant, run.thread_id, run.id, 0)
    if deliver and not occupied:
        await deliveries.enqueue(connection, key)
    created = _created(run, RunStatus.CREATED, position=position)
    transaction.say(run.tenant, run.thread_id, run.id, created)
    record = _record(run, Created(not occupied), transaction.now, events_from, first_seq=None)
    input_ids = tuple(input_id for input_id, _ in waiting)
    return InLine(record, None if deliver or occupied else key, input_ids)


def _created(run: NewRun, status: RunStatus, *, position: int) -> RunCreated:
    ids = [str(message.id) for message in run.messages] or run.request["input_message_ids"]
    return RunCreated(run.agent_id, status.value, position, ids)


def _record(
    run: NewRun, state: RunState, at: datetime, events_from: int, *, first_seq: int | None
) -> RunRecord:
    """The record as it was just written, without reading it back."""
    executes = isinstance(state, Running)
    consumed = (
        run.input
        if first_seq is None
        else MessageInput(
            MessageRange.of(first_seq, first_seq + len(run.messages) - 1),
            tuple(message.id for message in run.messages),
        )
    )
    return RunRecord(
        tenant=run.tenant,
        id=run.id,
        thread_id=run.thread_id,
        agent_id=run.agent_id,
        agent_version=run.agent_version,
        state=state,
        lineage=run.lineage,
        request=run.request,
        input=consumed,
        output=MessageOutput(),
        steps=0,
        usage=Usage(),
        run_state=None,
        metadata=run.metadata,
        started_by=run.started_by,
        dispatch_id=None,
        attempt=1 if executes else 0,
        losses=0,
        cancel_requested_at=None,
        created_at=at,
        started_at=at if executes else None,
        updated_at=at,
        events_from=events_from,
    )
