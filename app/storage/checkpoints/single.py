"""Writes one checkpoint of any kind, in the caller's transaction.

`checkpoints/batched` writes the frequent kinds. This module also writes the other suspensions, ends
that admit the thread's next run, and ends of runs that no worker executes. The rows are written by the same
statement. Before it, this module locks the rows and makes the checks, because they read more than the statement
can. Both are fenced by attempt, only append messages, and write all or nothing. The caller appends the events last.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Any, TypeAlias

from msgspec import Struct

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
from app.domain.runs.runs import Done, Running, RunRecord, RunStatus, Waiting, WaitingReason
from app.domain.runs.terminations import Cancelled, NaturalEnd
from app.domain.signals import MatchWait
from app.domain.structs import replace
from app.domain.threads.threads import Thread
from app.domain.tickets.tickets import TicketKind, can_resume
from app.storage.checkpoints.statement import checkpoint_query
from app.storage.children import background_tasks, child_runs
from app.storage.postgres.database import Connection
from app.storage.queue import deliveries, run_ends
from app.storage.runs import pauses, runs, thread_queue
from app.storage.runs.runs import RunKey
from app.storage.threads import inputs, rollbacks, threads
from app.storage.tickets import child_tickets, signals, tickets


class OwnershipMismatch(Struct, frozen=True):
    """Nothing was written: the run has another attempt or status than the writer expected."""


Outcome: TypeAlias = CheckpointSaved | DecidedConcurrently | InputOrTasksPending | OwnershipMismatch

EXECUTING: Collection[RunStatus] = frozenset({RunStatus.RUNNING})


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
    await tickets.void(connection, checkpoint.tenant, checkpoint.run_id, checkpoint.void)
    await _enqueue_followups(connection, checkpoint)
    await _begin_tasks(connection, checkpoint, at)
    saved = await _close_inputs_and_tasks(connection, checkpoint, record, at)
    await _match_kept_signals(connection, checkpoint)
    queued = await _next_queued(connection, checkpoint, thread)
    locked = _locked_columns(checkpoint, thread, saved, queued)
    await connection.driver.fetch(*checkpoint_query([(checkpoint, ())], at, locked))
    if queued is not None and await thread_queue.mark_admitted(connection, queued):
        await deliveries.enqueue(connection, queued)
    return await _follow_state(connection, checkpoint, thread, record, saved, at)


def _locked_columns(
    checkpoint: Checkpoint, thread: Thread, saved: CheckpointSaved, queued: RunKey | None
) -> dict[str, Any]:
    """What the statement can't know: values that depend on the rows that were read under their locks."""
    state, inferred = checkpoint.state, checkpoint.inferred_input
    until = state.until if isinstance(state, Waiting) else None
    input_range = None if inferred is None else inferred.range
    is_open = thread.open_run_id == checkpoint.run_id
    leaves_queue = queued is not None or (isinstance(state, Done) and not is_open)
    next_run = None if queued is None else queued.run_id
    return {
        "open_run_id": next_run if isinstance(state, Done) and is_open else thread.open_run_id,
        "queue_length": thread.queue_length - leaves_queue,
        "unread_inputs": saved.unread_inputs,
        "open_tasks": saved.open_tasks,
        "waiting_until": None if until is None else until.isoformat(),
        "infers_input": inferred is not None,
        "input_from": None if input_range is None else input_range.from_seq,
        "input_to": None if input_range is None else input_range.to_seq,
        "input_ids": [] if inferred is None else list(inferred.trigger_message_ids),
    }


async def _follow_state(
    connection: Connection,
    checkpoint: Checkpoint,
    thread: Thread,
    record: RunRecord,
    saved: CheckpointSaved,
    at: datetime,
) -> CheckpointSaved:
    """Write what follows from the run's new state, once its row has that state."""
    tenant, run_id, state = checkpoint.tenant, checkpoint.run_id, checkpoint.state
    if isinstance(state, Done):
        await tickets.void_open(connection, tenant, run_id)
    elif isinstance(state, Waiting):
        if record.cancel_requested_at is not None:
            # The cancel request came during this checkpoint, and a suspended run has no worker: enqueue one.
            await deliveries.enqueue(connection, _key_of(checkpoint), is_cancel=True)
        elif state.until is not None:
            await deliveries.enqueue_at(connection, _key_of(checkpoint), state.until)
    if checkpoint.owes_run_end:
        await run_ends.add(connection, record)
    if isinstance(state, Done) and (by := record.rolled_back_by) is not None:
        last_seq = thread.next_message_seq + len(checkpoint.messages) - 1
        rolled_back = await rollbacks.add(connection, record, by, last_seq, at)
        ends = (None, None) if rolled_back is None else (rolled_back.from_seq, rolled_back.to_seq)
        saved = replace(saved, rolled_back=RolledBack(by, *ends))
    if isinstance(state, Waiting):
        below = await child_tickets.open_below(connection, tenant, run_id)
        saved = replace(saved, tickets_below=tuple(below))
    return await _with_pause(connection, checkpoint, record, saved)


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


async def _next_queued(
    connection: Connection, checkpoint: Checkpoint, thread: Thread
) -> RunKey | None:
    """The thread's first queued run, if this checkpoint ends the open one."""
    if not isinstance(checkpoint.state, Done) or thread.open_run_id != checkpoint.run_id:
        return None
    return await thread_queue.next_queued(connection, checkpoint.tenant, checkpoint.thread_id)
