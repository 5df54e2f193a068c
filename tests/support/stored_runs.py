"""Rows of runs for storage tests: admitted, taken over, checkpointed."""

from collections.abc import Sequence
from datetime import timedelta

from app.clock import SystemClock, new_id
from app.domain.checkpoints import Checkpoint, PendingEvent
from app.domain.events.agent_events import AgentEvent
from app.domain.events.run_events import RunCreated
from app.domain.events.step_events import TextDelta
from app.domain.ids import (
    AgentId,
    AgentVersion,
    CallId,
    MessageId,
    RunId,
    Tenant,
    ThreadId,
    TicketKey,
    WorkerId,
)
from app.domain.runs.runs import (
    Done,
    Lineage,
    MessageOutput,
    NewRun,
    Running,
    Usage,
    Waiting,
    WaitingReason,
)
from app.domain.runs.terminations import NaturalEnd
from app.domain.threads.messages import Message, Role, Text, ToolCall
from app.domain.tickets.opening import ticket_for
from app.domain.tickets.tickets import Ticket, TicketKind
from app.domain.tools.tool_calls import (
    CallState,
    CallStatus,
    Effect,
    SuspensionRequest,
    idempotency_key,
)
from app.storage import workers
from app.storage.events.batched_append import Flush
from app.storage.events.event_log import EventEntry, entry
from app.storage.postgres.connect import RawConnection
from app.storage.postgres.database import RawPool
from app.storage.runs import claims
from app.storage.runs.claims import AdmittedRow

TENANT = Tenant("acme")
TIMEOUT = 5.0
"""Seconds without a heartbeat after which a worker counts as dead."""

_CLOCK = SystemClock()


def message(text: str, role: Role = Role.USER) -> Message:
    return Message(id=MessageId(new_id()), role=role, content=(Text(text),))


def some_run(
    *texts: str,
    thread_id: ThreadId | None = None,
    run_id: RunId | None = None,
    tenant: Tenant = TENANT,
) -> NewRun:
    run_id = run_id or RunId(new_id())
    return NewRun(
        tenant=tenant,
        id=run_id,
        thread_id=thread_id or ThreadId(new_id()),
        agent_id=AgentId("clerk"),
        agent_version=AgentVersion("v1"),
        messages=tuple(map(message, texts or ("Hello",))),
        request={"origin": "User"},
        request_digest="a digest",
        metadata={"of": "a test"},
        started_by="ann",
        lineage=Lineage(run_id),
    )


def entries_of(*events: AgentEvent, step: int | None = 1) -> list[EventEntry]:
    return [entry(PendingEvent(event, step)) for event in events]


def deltas(*texts: str) -> list[EventEntry]:
    return entries_of(*map(TextDelta, texts))


async def worker(pool: RawPool) -> WorkerId:
    """A worker with one fresh heartbeat."""
    me = WorkerId(new_id())
    await workers.heartbeat(pool, me, "worker", "here", 1)
    return me


async def die(pool: RawPool, lost: WorkerId) -> None:
    """Move a worker's last heartbeat into the past."""
    await pool.execute(
        "UPDATE workers SET heartbeat_at = now() - $2::interval WHERE id = $1",
        lost,
        timedelta(hours=1),
    )


async def admit(pool: RawPool, run: NewRun, owner: WorkerId) -> AdmittedRow | None:
    ids = [str(one.id) for one in run.messages]
    created = entries_of(RunCreated(run.agent_id, "running", 0, ids), step=None)
    return await claims.admit(pool, run, owner, created, _CLOCK.now())


async def running(pool: RawPool, owner: WorkerId | None = None) -> NewRun:
    """A run on a thread of its own, at attempt 1."""
    run = some_run()
    assert await admit(pool, run, owner or await worker(pool)) is not None
    return run


async def taken_over(pool: RawPool) -> NewRun:
    """A run that a second worker has taken over, at attempt 2."""
    lost = await worker(pool)
    run = await running(pool, lost)
    await die(pool, lost)
    successor = await worker(pool)
    assert await claims.claim(pool, run.tenant, run.thread_id, run.id, successor, TIMEOUT)
    return run


def flush_of(run: NewRun, *texts: str, attempt: int = 1) -> Flush:
    return Flush(run.tenant, run.thread_id, run.id, attempt, deltas(*texts))


def checkpoint_of(
    run: NewRun,
    *texts: str,
    attempt: int = 1,
    next_seq: int = 2,
    state: Running | Waiting | Done | None = None,
    calls: Sequence[CallState] = (),
    calls_settled: bool = False,
    opened: Sequence[Ticket] = (),
    applied: Sequence[TicketKey] = (),
    emitted: Sequence[AgentEvent] = (),
) -> Checkpoint:
    """A checkpoint with the messages `texts`; the run stays running by default."""
    return Checkpoint(
        tenant=run.tenant,
        thread_id=run.thread_id,
        run_id=run.id,
        attempt=attempt,
        next_seq=next_seq,
        messages=tuple(
            message(text, Role.ASSISTANT).produced_by(run.id, step_index=0) for text in texts
        ),
        output=MessageOutput(),
        state=state or Running(None),
        steps=1,
        usage=Usage(3, 4),
        run_state={"mood": "good"},
        calls=tuple(calls),
        calls_settled=calls_settled,
        opened=tuple(opened),
        applied=tuple(applied),
        pending_events=tuple(PendingEvent(event, 1) for event in emitted),
    )


def done() -> Done:
    return Done(NaturalEnd(), _CLOCK.now(), "Bye", {"words": ["Bye"], "a": 1})


def suspended() -> Waiting:
    return Waiting(WaitingReason.TOOL_PERMISSION, "suspended")


def call_of(run: NewRun, status: CallStatus, id: str = "call-1") -> CallState:
    return CallState(
        call=ToolCall(CallId(id), "transfer", {"amount": 5}),
        step_index=0,
        position=0,
        status=status,
        effect=Effect.UNSAFE,
        idempotency_key=idempotency_key(run.id, 0, CallId(id)),
        tool_digest="sha256:0a",
    )


def ticket_of(run: NewRun, name: str = "ticket-1") -> Ticket:
    return ticket_for(
        call_of(run, CallStatus.SUSPENDED),
        SuspensionRequest("May I?"),
        id=TicketKey(new_id()),
        run_id=run.id,
        thread_id=run.thread_id,
        agent_id=run.agent_id,
        name=name,
        kind=TicketKind.APPROVAL,
        at=_CLOCK.now(),
    )


async def logged_seqs(connection: "RawPool | RawConnection", run: NewRun) -> list[int]:
    rows = await connection.fetch(
        "SELECT seq FROM events WHERE tenant = $1 AND thread_id = $2 ORDER BY seq",
        run.tenant,
        run.thread_id,
    )
    return [row["seq"] for row in rows]
