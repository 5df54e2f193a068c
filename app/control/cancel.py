"""Cancel: a durable wish, and at once its fulfilment where nobody executes the run.

An executing run's owner hears of the wish (and finds it with its next heartbeat anyway); a lost
owner's run is found by the sweeper, and whoever claims it ends it.
"""

from dataclasses import dataclass

from app.backends.remote_run import accepted_turn
from app.clock import new_id
from app.control.desk import Desk
from app.control.once import Once, begin, settle
from app.control.reading import run_not_found
from app.domain.checkpoints import Checkpoint, Saved, materialize_output
from app.domain.control_events import CancelRequested
from app.domain.events import RunFinish
from app.domain.identity import run_identity
from app.domain.ids import MessageId, RunId
from app.domain.messages import CutShort, LoggedMessage
from app.domain.principals import Principal, Scope
from app.domain.rate_limits import partial_answer_of
from app.domain.runs import Done, RunRecord, RunStatus
from app.domain.terminations import Cancelled, status_reason, termination_to_json
from app.domain.threads import Thread
from app.domain.tickets import TicketStatus
from app.domain.tool_calls import INTERRUPTED, CallState, ToolResult
from app.events.outgoing import Transaction
from app.storage import checkpoints, runs, threads, tickets, tool_calls

_AT_REST = frozenset({RunStatus.CREATED, RunStatus.WAITING})


@dataclass(frozen=True, slots=True)
class CancelAnswer:
    run: RunRecord
    is_settled: bool


@dataclass(frozen=True, slots=True)
class Interruption:
    """A run that was wished away while somebody executes it, who should hear of that."""

    run_id: RunId
    reason: str | None


async def cancel(
    desk: Desk,
    principal: Principal,
    run_id: RunId,
    *,
    reason: str | None,
    once: Once[CancelAnswer] | None = None,
) -> CancelAnswer:
    """Wish for a run's end; settled when it has ended, now or before."""
    principal.require(Scope.RUNS_WRITE)
    async with desk.outgoing.transaction() as transaction:
        connection = transaction.connection
        await begin(connection, principal, once)
        known = await runs.get(connection, principal.tenant, run_id)
        if known is None:
            raise run_not_found(run_id)
        thread = await threads.lock(connection, principal.tenant, known.thread_id)
        record = await runs.lock(connection, principal.tenant, run_id)
        if thread is None or record is None:
            raise run_not_found(run_id)
        interrupted = None
        if not record.is_done:
            interrupted = await wish(transaction, principal, thread, record, reason)
        after = await runs.get(connection, principal.tenant, run_id)
        if after is None:
            raise run_not_found(run_id)
        answer = CancelAnswer(after, after.is_done)
        await settle(connection, principal, once, answer)
    await announce(desk, principal, interrupted)
    return answer


async def announce(desk: Desk, principal: Principal, interrupted: Interruption | None) -> None:
    """The fast path of a wish that is committed."""
    if interrupted is not None:
        await desk.announce_cancel(principal.tenant, interrupted.run_id, interrupted.reason)


async def wish(
    transaction: Transaction,
    principal: Principal,
    thread: Thread,
    record: RunRecord,
    reason: str | None,
) -> Interruption | None:
    """Write the wish down, and fulfil it where nobody executes. The first wish's reason stays, and is
    what the run's owner is to be told once this is committed."""
    if record.cancel_requested_at is not None:
        reason = await runs.cancel_reason(transaction.connection, record.tenant, record.id)
    else:
        await runs.intend_cancel(
            transaction.connection, record.tenant, record.id, by=principal.subject, reason=reason
        )
        transaction.say(
            record.tenant, record.thread_id, record.id, CancelRequested(principal.subject, reason)
        )
    if record.status in _AT_REST:
        await end_at_rest(transaction, thread, record, reason)
    return Interruption(record.id, reason) if record.status is RunStatus.RUNNING else None


async def end_at_rest(
    transaction: Transaction, thread: Thread, record: RunRecord, reason: str | None
) -> None:
    """End a run that nobody executes, as its worker would: the text of an answer that a wait has
    interrupted, results for open calls, then the end."""
    connection, now = transaction.connection, transaction.now
    partial = partial_answer_of(record.run_state)
    said = None if partial is None else partial.as_message(MessageId(new_id()), CutShort.CANCELLED)
    response = "" if said is None else said.text
    termination = Cancelled(reason)
    unsettled = await tickets.unsettled_of_run(connection, record.tenant, record.id)
    open_calls = [
        state
        for state in await tool_calls.of_run(connection, record.tenant, record.id)
        if not state.is_answered
    ]
    last = [] if said is None else [said]
    last += [
        _last_word(state).as_message(MessageId(new_id()), state.call.id, state.run_with)
        for state in open_calls
    ]
    answers = [
        LoggedMessage(thread.next_message_seq + place, message)
        for place, message in enumerate(last)
    ]
    made = materialize_output(
        answers,
        run_id=record.id,
        input=record.input,
        previous=record.output,
        step_count=max((state.step_index + 1 for state in open_calls), default=record.steps),
    )
    checkpoint = Checkpoint(
        tenant=record.tenant,
        thread_id=record.thread_id,
        run_id=record.id,
        attempt=record.attempt,
        next_seq=thread.next_message_seq,
        messages=tuple(answer.message for answer in made.messages),
        output=made.output,
        state=Done(termination, now, response or None),
        steps=record.steps,
        usage=record.usage,
        run_state=record.run_state or {},
        calls_settled=True,
        applied=tuple(t.key for t in unsettled if t.status is not TicketStatus.OPEN),
        tells_remote=accepted_turn(record) is not None,
        parent_run_id=record.lineage.parent_run_id,
    )
    outcome = await checkpoints.save(connection, checkpoint, at=now, believed=_AT_REST)
    if not isinstance(outcome, Saved):
        raise RuntimeError(f"run {record.id} changed under its lock")
    finish = RunFinish(
        identity=run_identity(record),
        termination=termination_to_json(termination),
        result={
            "response": response,
            "status": "done",
            "status_reason": status_reason(termination),
        },
    )
    if outcome.rolled_back is not None:
        transaction.say(record.tenant, record.thread_id, record.id, outcome.rolled_back)
    transaction.say(record.tenant, record.thread_id, record.id, finish)


def _last_word(state: CallState) -> ToolResult:
    """What a call came to, if that is known and hasn't been told."""
    if state.untold is None or state.untold.suspension is not None:
        return ToolResult.error(state.call.name, INTERRUPTED)
    return state.untold
