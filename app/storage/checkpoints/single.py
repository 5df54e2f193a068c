"""Writes one checkpoint of any kind, in the caller's transaction.

`checkpoints/batched` writes the frequent kinds. This module also writes the other suspensions, ends
that admit the thread's next run, and ends of runs that no worker executes. Both are fenced by attempt, only
append messages, and write all or nothing. The caller appends the events last.
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
from app.domain.events.run_events import PauseRequested, RolledBack
from app.domain.json_values import storable
from app.domain.runs.runs import Done, Running, RunRecord, RunStatus, Waiting, WaitingReason
from app.domain.runs.terminations import Cancelled, NaturalEnd
from app.domain.signals import MatchWait
from app.domain.tickets.tickets import ANSWERED_BY_PROGRAMS, TicketKind, can_resume
from app.storage import usage
from app.storage.checkpoints.rows import write_calls, write_run
from app.storage.children import background_tasks, child_runs
from app.storage.postgres.database import Connection
from app.storage.queue import deliveries, run_ends
from app.storage.runs import pauses, runs, thread_queue
from app.storage.runs.runs import RunKey
from app.storage.tables import event_heads
from app.storage.threads import inputs, messages, rollbacks, threads
from app.storage.tickets import child_tickets, opening, signals, tickets


@dataclass(frozen=True, slots=True)
class OwnershipMismatch:
    """Nothing was written: the run has another attempt or status than the writer expected."""


Outcome: TypeAlias = CheckpointSaved | DecidedConcurrently | InputOrTasksPending | OwnershipMismatch

EXECUTING: Collection[RunStatus] = frozenset({RunStatus.RUNNING})


def is_batchable(checkpoint: Checkpoint) -> bool:
    """Whether `checkpoints/batched` can write it: it waits only for people, and ends at most naturally."""
    if checkpoint.opened and not isinstance(checkpoint.state, Waiting):
        return False
    if checkpoint.void or checkpoint.tasks:
        return False
    if any(ticket.kind in ANSWERED_BY_PROGRAMS for ticket in checkpoint.opened):
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
        case Waiting(reason, _, until):
            # A child, a signal or a time resumes the others, which needs more rows.
            asks_person = reason in (WaitingReason.TOOL_PERMISSION, WaitingReason.USER_INPUT)
            return asks_person and until is None and checkpoint.parent_run_id is None
        case Done(termination):
            return isinstance(termination, NaturalEnd) and checkpoint.parent_run_id is None
        case _:
            assert_never(checkpoint.state)


async def save(
    connection: Connection,
    checkpoint: Checkpoint,
    *,
    at: datetime,
    expected: Collection[RunStatus] = EXECUTING,
) -> Outcome:
    """Write the whole checkpoint, or nothing."""
    thread = await threads.lock(connection, checkpoint.tenant, checkpoint.thread_id)
    record = await runs.lock(connection, checkpoint.tenant, checkpoint.run_id)
    if (
        thread is None
        or record is None
        or record.attempt != checkpoint.attempt
        or record.status not in expected
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
    await opening.open_all(connection, checkpoint.tenant, checkpoint.opened)
    await _enqueue_followups(connection, checkpoint)
    await messages.append(
        connection,
        checkpoint.tenant,
        checkpoint.thread_id,
        checkpoint.next_seq,
        checkpoint.messages,
    )
    await usage.add(
        connection, checkpoint.tenant, checkpoint.run_id, checkpoint.attempt, checkpoint.billed
    )
    await write_calls(connection, checkpoint, record, at)
    await _begin_tasks(connection, checkpoint, at)
    counters = await _close_inputs_and_tasks(connection, checkpoint, record, at)
    await write_run(connection, checkpoint, record, counters, at)
    await _match_kept_signals(connection, checkpoint)
    next_seq = thread.next_message_seq + len(checkpoint.messages)
    thread_values: dict[str, Any] = {"next_message_seq": next_seq, "updated_at": at}
    if checkpoint.thread_state is not None:
        await runs.save_thread_state(connection, checkpoint.tenant, checkpoint.run_id)
        thread_values["state"] = storable(checkpoint.thread_state)
    if isinstance(checkpoint.state, Done):
        await tickets.void_open(connection, checkpoint.tenant, checkpoint.run_id)
        if thread.open_run_id == checkpoint.run_id:
            thread_values |= await _admit_next(connection, checkpoint, thread.queue_length)
        else:
            thread_values["queue_length"] = thread.queue_length - 1
    elif isinstance(checkpoint.state, Waiting) and record.cancel_requested_at is not None:
        # The cancel request came during this checkpoint, and a suspended run has no worker: enqueue one.
        await deliveries.enqueue(connection, _key_of(checkpoint), is_cancel=True)
    elif isinstance(checkpoint.state, Waiting) and (until := checkpoint.state.until) is not None:
        await deliveries.enqueue_at(connection, _key_of(checkpoint), until)
    await threads.change(connection, checkpoint.tenant, checkpoint.thread_id, thread_values)
    if checkpoint.owes_run_end:
        await run_ends.add(connection, record)
    if isinstance(checkpoint.state, Done) and (by := record.rolled_back_by) is not None:
        rolled_back = await rollbacks.add(connection, record, by, next_seq - 1, at)
        ends = (None, None) if rolled_back is None else (rolled_back.from_seq, rolled_back.to_seq)
        counters = replace(counters, rolled_back=RolledBack(by, *ends))
    if isinstance(checkpoint.state, Waiting):
        below = await child_tickets.open_below(connection, checkpoint.tenant, checkpoint.run_id)
        counters = replace(counters, tickets_below=tuple(below))
    return await _with_pause(connection, checkpoint, record, counters)


async def _with_pause(
    connection: Connection, checkpoint: Checkpoint, record: RunRecord, saved: CheckpointSaved
) -> CheckpointSaved:
    """Write a plugin's pause request, and return whether the run is paused."""
    new = checkpoint.pause
    if record.pause is not None or new is None or isinstance(checkpoint.state, Done):
        return replace(saved, is_paused=record.pause is not None)
    await pauses.request(
        connection, checkpoint.tenant, checkpoint.run_id, by=new.requested_by, reason=new.reason
    )
    event = PauseRequested(new.requested_by, new.reason)
    return replace(saved, is_paused=True, pause_requested=event)


async def _enqueue_followups(connection: Connection, checkpoint: Checkpoint) -> None:
    """Enqueue what follows from this commit for other runs and remote agents.

    Children are started and cancelled. A parent gets a report. A remote agent is aborted. A worker calls the
    `run_end` hooks that weren't called here.
    """
    for ticket in checkpoint.opened:
        if ticket.kind is TicketKind.CHILD:
            work = work_from_json(ticket.evidence or {})
            await child_runs.start(connection, checkpoint.tenant, checkpoint.run_id, work)
    if isinstance(checkpoint.state, Done):
        await child_runs.cancel_all(connection, checkpoint.tenant, checkpoint.run_id)
    if checkpoint.notifies_remote:
        abort = AbortRemote(tenant=checkpoint.tenant, run_id=checkpoint.run_id)
        await deliveries.enqueue_followup(connection, abort)
    if checkpoint.owes_run_end:
        due = CallRunEnd(tenant=checkpoint.tenant, run_id=checkpoint.run_id)
        await deliveries.enqueue_followup(connection, due)
    if (parent := checkpoint.parent_run_id) is None:
        return
    if not isinstance(checkpoint.state, Running):
        # The report updates the tickets on the parent's stream, too.
        await child_runs.report_to_parent(connection, checkpoint.tenant, parent, checkpoint.run_id)
    elif checkpoint.opened or checkpoint.void:
        await child_runs.show_tickets(connection, checkpoint.tenant, parent, checkpoint.run_id)


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
    """Detach the thread's event head from a run that no longer executes; the last lock to take."""
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
    """Whether a decision would resume the run.

    A run can't use one while its agent is unavailable, while it is paused, or while it waits for a rate
    limit. A run that waits for its tasks has no tickets.
    """
    state = checkpoint.state
    return isinstance(state, Waiting) and state.reason not in (
        WaitingReason.AGENT_VERSION_UNAVAILABLE,
        WaitingReason.BACKGROUND_TASKS,
        WaitingReason.MANUAL_PAUSE,
        WaitingReason.RATE_LIMIT,
    )


def _may_suspend(checkpoint: Checkpoint, record: RunRecord) -> bool:
    """A run may not finish with unread inputs or open tasks, and may not wait for tasks it doesn't have."""
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


async def _close_inputs_and_tasks(
    connection: Connection, checkpoint: Checkpoint, record: RunRecord, at: datetime
) -> CheckpointSaved:
    """Close the inputs and tasks of a run that ends, and return the run's new counters.

    Cancelling a run cancels its tasks. After any other end, tasks that were started continue and their
    results are stored, but start no run.
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
    # These tasks were never started, so that no child has to be cancelled.
    await background_tasks.cancel_all(
        connection, checkpoint.tenant, checkpoint.run_id, at, only=begun
    )
    return CheckpointSaved(open_tasks=record.open_tasks)


async def _was_answered(connection: Connection, checkpoint: Checkpoint) -> bool:
    """Whether a decision that came while the run executed lets the run continue.

    Such a decision has no delivery.
    """
    unsettled = await tickets.unsettled_of_run(connection, checkpoint.tenant, checkpoint.run_id)
    unapplied = [ticket for ticket in unsettled if ticket.id not in checkpoint.applied]
    return can_resume([*unapplied, *checkpoint.opened])


async def _admit_next(
    connection: Connection, checkpoint: Checkpoint, queue_length: int
) -> dict[str, Any]:
    """Admit the first queued run of the thread, and return the thread's new values."""
    queued = await thread_queue.next_queued(connection, checkpoint.tenant, checkpoint.thread_id)
    if queued is None:
        return {"open_run_id": None}
    if await thread_queue.mark_admitted(connection, queued):
        await deliveries.enqueue(connection, queued)
    return {"open_run_id": queued.run_id, "queue_length": queue_length - 1}
