"""One checkpoint in one transaction: the whole of it, for every kind of ending.

The hot statement writes what nearly every checkpoint is; this writes all of them: suspensions with
their tickets, ends that admit the next run of the thread, ends that a command brings about while
nobody executes. Both keep the same promises: fenced by attempt, messages only appended, nothing
partial. The transaction belongs to the caller, who says the events last.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias, assert_never

from sqlalchemy import update

from app.domain.checkpoints import (
    Checkpoint,
    CheckpointSaved,
    DecidedConcurrently,
    InputOrTasksPending,
)
from app.domain.children.background_tasks import TaskKey
from app.domain.children.child_runs import work_from_json
from app.domain.children.followups import AbortRemote, CallRunEnd
from app.domain.events.command_events import PauseRequested, RolledBack
from app.domain.json_values import storable
from app.domain.runs.runs import Done, Running, RunRecord, RunStatus, Waiting, WaitingReason
from app.domain.runs.terminations import Cancelled, NaturalEnd
from app.domain.signals import MatchWait
from app.domain.tickets.tickets import TicketKind, can_resume
from app.storage.checkpoints.rows import write_calls, write_run
from app.storage.children import background_tasks, child_runs
from app.storage.postgres.database import Connection
from app.storage.queue import deliveries, run_ends
from app.storage.runs import pauses, runs, thread_queue
from app.storage.runs.runs import RunKey
from app.storage.tables import event_heads
from app.storage.threads import inputs, messages, rollbacks, threads
from app.storage.tickets import signals, tickets


@dataclass(frozen=True, slots=True)
class OwnershipMismatch:
    """Nothing was written: the run has another attempt or status than the writer believes."""


Outcome: TypeAlias = CheckpointSaved | DecidedConcurrently | InputOrTasksPending | OwnershipMismatch

EXECUTING: Collection[RunStatus] = frozenset({RunStatus.RUNNING})


def is_batchable(checkpoint: Checkpoint) -> bool:
    """Whether the one-statement way may be tried: nothing is opened, no end but the usual one."""
    if checkpoint.opened or checkpoint.void or checkpoint.tasks:
        return False
    if checkpoint.notifies_remote or checkpoint.owes_run_end:
        return False
    if checkpoint.pause is not None:
        return False
    if checkpoint.inferred_input is not None:
        return False
    match checkpoint.state:
        case Running():
            return True
        case Waiting():
            return False
        case Done(termination):
            return isinstance(termination, NaturalEnd) and checkpoint.parent_run_id is None
        case _:
            assert_never(checkpoint.state)


async def save(
    connection: Connection,
    checkpoint: Checkpoint,
    *,
    at: datetime,
    believed: Collection[RunStatus] = EXECUTING,
) -> Outcome:
    """Write a checkpoint whole, or nothing at all."""
    thread = await threads.lock(connection, checkpoint.tenant, checkpoint.thread_id)
    record = await runs.lock(connection, checkpoint.tenant, checkpoint.run_id)
    if (
        thread is None
        or record is None
        or record.attempt != checkpoint.attempt
        or record.status not in believed
        or (checkpoint.messages and thread.next_message_seq != checkpoint.next_seq)
    ):
        return OwnershipMismatch()
    if (_waits_for_answers(checkpoint) or checkpoint.void) and await _was_answered(
        connection, checkpoint
    ):
        return DecidedConcurrently()
    if not _may_suspend(checkpoint, record):
        return InputOrTasksPending(
            record.unread_inputs, record.open_tasks, record.pause is not None
        )
    await tickets.mark_applied(connection, checkpoint.tenant, checkpoint.applied)
    await tickets.void(connection, checkpoint.tenant, checkpoint.run_id, checkpoint.void)
    await tickets.open_all(connection, checkpoint.tenant, checkpoint.opened)
    await _send_errands(connection, checkpoint)
    await messages.append(
        connection,
        checkpoint.tenant,
        checkpoint.thread_id,
        checkpoint.next_seq,
        checkpoint.messages,
    )
    await write_calls(connection, checkpoint, record, at)
    await _begin_tasks(connection, checkpoint, at)
    standing = await _settle(connection, checkpoint, record, at)
    await write_run(connection, checkpoint, record, standing, at)
    await _match_kept_signals(connection, checkpoint)
    next_seq = thread.next_message_seq + len(checkpoint.messages)
    advanced: dict[str, Any] = {"next_message_seq": next_seq, "updated_at": at}
    if checkpoint.thread_state is not None:
        await runs.note_thread_state(connection, checkpoint.tenant, checkpoint.run_id)
        advanced["state"] = storable(checkpoint.thread_state)
    if isinstance(checkpoint.state, Done):
        await tickets.void_open(connection, checkpoint.tenant, checkpoint.run_id)
        if thread.open_run_id == checkpoint.run_id:
            advanced |= await _admit_next(connection, checkpoint, thread.queue_length)
        else:
            advanced["queue_length"] = thread.queue_length - 1
    elif isinstance(checkpoint.state, Waiting) and record.cancel_requested_at is not None:
        # No worker reads the cancel requests of waiting runs: one has to claim the run and end it.
        await deliveries.enqueue(connection, _key_of(checkpoint), is_cancel=True)
    elif isinstance(checkpoint.state, Waiting) and (until := checkpoint.state.until) is not None:
        await deliveries.enqueue_at(connection, _key_of(checkpoint), until)
    await threads.change(connection, checkpoint.tenant, checkpoint.thread_id, advanced)
    if checkpoint.owes_run_end:
        await run_ends.add(connection, record)
    if isinstance(checkpoint.state, Done) and (by := record.rolled_back_by) is not None:
        stretch = await rollbacks.add(connection, record, by, next_seq - 1, at)
        ends = (None, None) if stretch is None else (stretch.from_seq, stretch.to_seq)
        standing = replace(standing, rolled_back=RolledBack(by, *ends))
    return await _with_pause(connection, checkpoint, record, standing)


async def _with_pause(
    connection: Connection, checkpoint: Checkpoint, record: RunRecord, saved: CheckpointSaved
) -> CheckpointSaved:
    """Write a plugin's pause, and tell the run whether it is paused from now on."""
    new = checkpoint.pause
    if record.pause is not None or new is None or isinstance(checkpoint.state, Done):
        return replace(saved, is_paused=record.pause is not None)
    await pauses.request(
        connection, checkpoint.tenant, checkpoint.run_id, by=new.requested_by, reason=new.reason
    )
    event = PauseRequested(new.requested_by, new.reason)
    return replace(saved, is_paused=True, pause_requested=event)


async def _send_errands(connection: Connection, checkpoint: Checkpoint) -> None:
    """What others have to have done about this commit: children begin and end with their parents, a remote
    agent stops when its run does, and a worker calls the `run_end` hooks that weren't called here."""
    for ticket in checkpoint.opened:
        if ticket.kind is TicketKind.CHILD:
            work = work_from_json(ticket.evidence or {})
            await child_runs.start(connection, checkpoint.tenant, checkpoint.run_id, work)
    if isinstance(checkpoint.state, Done):
        await child_runs.cancel_all(connection, checkpoint.tenant, checkpoint.run_id)
    if checkpoint.notifies_remote:
        told = AbortRemote(tenant=checkpoint.tenant, run_id=checkpoint.run_id)
        await deliveries.enqueue_followup(connection, told)
    if checkpoint.owes_run_end:
        due = CallRunEnd(tenant=checkpoint.tenant, run_id=checkpoint.run_id)
        await deliveries.enqueue_followup(connection, due)
    if checkpoint.parent_run_id is not None and not isinstance(checkpoint.state, Running):
        await child_runs.report_to_parent(
            connection, checkpoint.tenant, checkpoint.parent_run_id, checkpoint.run_id
        )


async def _match_kept_signals(connection: Connection, checkpoint: Checkpoint) -> None:
    """Queue a match for each opened ticket that a kept signal may answer.

    The key's lock is held until commit: a signal that is sent meanwhile sees the ticket. Keys are locked in
    one order, because other runs may open tickets for the same ones.
    """
    opened = [(ticket.event, ticket.id) for ticket in checkpoint.opened if ticket.event is not None]
    for wait, ticket in sorted(opened, key=lambda each: (each[0].name, each[0].key)):
        await signals.lock_key(connection, checkpoint.tenant, wait.name, wait.key)
        if await signals.count_kept(connection, checkpoint.tenant, wait.name, wait.key):
            job = MatchWait(tenant=checkpoint.tenant, run_id=checkpoint.run_id, ticket=ticket)
            await deliveries.enqueue_signal_job(connection, job)


async def release_event_head(connection: Connection, checkpoint: Checkpoint) -> None:
    """Nobody speaks for a run that no longer executes; last statement before the events."""
    await connection.execute(
        update(event_heads)
        .where(
            event_heads.c.tenant == checkpoint.tenant,
            event_heads.c.thread_id == checkpoint.thread_id,
            event_heads.c.run_id == checkpoint.run_id,
        )
        .values(run_id=None, attempt=None)
    )


def _key_of(checkpoint: Checkpoint) -> RunKey:
    return RunKey(checkpoint.tenant, checkpoint.thread_id, checkpoint.run_id, checkpoint.attempt)


def _waits_for_answers(checkpoint: Checkpoint) -> bool:
    """A run whose agent isn't available, that is paused or that waits for a moment can't use an answer, and
    waits whether there is one or not. A run that waits for its tasks has asked for none."""
    state = checkpoint.state
    return isinstance(state, Waiting) and state.reason not in (
        WaitingReason.AGENT_VERSION_UNAVAILABLE,
        WaitingReason.BACKGROUND_TASKS,
        WaitingReason.MANUAL_PAUSE,
        WaitingReason.RATE_LIMIT,
    )


def _may_suspend(checkpoint: Checkpoint, record: RunRecord) -> bool:
    """Nothing that was put before a run is lost by an end of its own, and none waits for nothing."""
    match checkpoint.state:
        case Done(NaturalEnd()):
            return not (record.unread_inputs or record.open_tasks or checkpoint.tasks)
        case Waiting(WaitingReason.BACKGROUND_TASKS):
            return not record.unread_inputs and record.open_tasks > 0
        case Waiting(WaitingReason.MANUAL_PAUSE):
            return record.pause is not None or checkpoint.pause is not None
        case _:
            return True


async def _begin_tasks(connection: Connection, checkpoint: Checkpoint, at: datetime) -> None:
    if not checkpoint.tasks:
        return
    await background_tasks.begin(
        connection,
        checkpoint.tenant,
        checkpoint.run_id,
        checkpoint.thread_id,
        checkpoint.tasks,
        at,
    )
    for task in checkpoint.tasks:
        if task.child is None:
            await deliveries.enqueue_task(connection, TaskKey(checkpoint.tenant, task.id, 0))
        else:
            await child_runs.start(connection, checkpoint.tenant, checkpoint.run_id, task.child)


async def _settle(
    connection: Connection, checkpoint: Checkpoint, record: RunRecord, at: datetime
) -> CheckpointSaved:
    """What the run's row counts from now on.

    A cancelled run takes its tasks along. After any other end those that were under way go on, and what
    comes of them starts nothing.
    """
    begun = [task.id for task in checkpoint.tasks]
    if not isinstance(checkpoint.state, Done):
        return CheckpointSaved(record.unread_inputs, record.open_tasks + len(begun))
    if record.unread_inputs:
        await inputs.retract(connection, checkpoint.tenant, checkpoint.run_id)
    if isinstance(checkpoint.state.termination, Cancelled):
        for child in await background_tasks.cancel_all(
            connection, checkpoint.tenant, checkpoint.run_id, at
        ):
            await child_runs.cancel(connection, checkpoint.tenant, checkpoint.run_id, child)
        return CheckpointSaved()
    # Of these none has begun: a child that isn't started needs no word.
    await background_tasks.cancel_all(
        connection, checkpoint.tenant, checkpoint.run_id, at, only=begun
    )
    return CheckpointSaved(open_tasks=record.open_tasks)


async def _was_answered(connection: Connection, checkpoint: Checkpoint) -> bool:
    """An answer that came while the run executed has no delivery of its own: don't sleep over it."""
    unsettled = await tickets.unsettled_of_run(connection, checkpoint.tenant, checkpoint.run_id)
    not_used = [ticket for ticket in unsettled if ticket.id not in checkpoint.applied]
    return can_resume([*not_used, *checkpoint.opened])


async def _admit_next(
    connection: Connection, checkpoint: Checkpoint, queue_length: int
) -> dict[str, Any]:
    """Hand the thread to the run that has queued for it longest, in the same transaction."""
    waiting = await thread_queue.next_queued(connection, checkpoint.tenant, checkpoint.thread_id)
    if waiting is None:
        return {"open_run_id": None}
    if await thread_queue.mark_admitted(connection, waiting):
        await deliveries.enqueue(connection, waiting)
    return {"open_run_id": waiting.run_id, "queue_length": queue_length - 1}
