"""Checkpoints at the end of a remote turn: the run finishes, suspends, or continues with another turn."""

from collections.abc import Sequence

from msgspec import Struct

from app.backends.remote.questions import decided_remotely, new_tickets, questions_of
from app.backends.remote.run import RemoteRun, previous_output, target_in
from app.domain.agents.backend_results import (
    WAITING_STATUSES,
    BackendCancelled,
    BackendFailed,
    BackendResult,
    Completed,
    TimedOut,
    output_to_json,
    persisted_status,
    status_of_termination,
)
from app.domain.agents.specs import AgentSpec
from app.domain.checkpoints import CheckpointSaved
from app.domain.events.agent_events import AgentEvent
from app.domain.events.run_finish import finish_done, finish_suspended
from app.domain.events.ticket_events import TicketOpened, TicketVoid
from app.domain.ids import TicketKey
from app.domain.json_values import Json, JsonObject
from app.domain.runs.runs import Done, Waiting, waiting_reason
from app.domain.runs.terminations import Cancelled, Failed, Stopped, Termination
from app.domain.structs import replace
from app.domain.threads.messages import Message, Role, Text, TruncationReason
from app.domain.tickets.ticket_json import ticket_to_json
from app.domain.tickets.tickets import Ticket, TicketStatus
from app.runtime.cancellation import Interruption
from app.runtime.ended.idle_end import UNUSED, IdleRun
from app.runtime.endings import Ending, RunFinished, Suspended, last_text
from app.runtime.ports.persistence import CheckpointStore
from app.runtime.run_session import ActivationStart

REMOTE_FAILED = "remote_failed"
TIMEOUT = "timeout"


class TurnOutcome(Struct, frozen=True):
    """The result of a turn, with the messages that it adds to the log."""

    result: BackendResult
    response: str
    messages: Sequence[Message]
    answered: Sequence[Ticket]

    @property
    def applied(self) -> list[TicketKey]:
        return [ticket.id for ticket in self.answered]


async def save_turn_outcome(run: RemoteRun, outcome: TurnOutcome) -> Ending | None:
    """Save a turn with the run's new state; None when another turn must follow."""
    outcome = replace(outcome, result=_redacted(run, outcome.result))
    if isinstance(outcome.result.status, WAITING_STATUSES):
        return await _suspend_on_questions(run, outcome)
    return await _finish_after_turn(run, outcome)


async def _suspend_on_questions(run: RemoteRun, outcome: TurnOutcome) -> Suspended | None:
    """Suspend the run, unless one of its tickets was decided meanwhile."""
    result = outcome.result
    still_open = [ticket for ticket in run.tickets if ticket.status is TicketStatus.OPEN]
    questions = questions_of(run, result)
    opened = new_tickets(run, questions, still_open)
    void = decided_remotely(questions, still_open)
    remaining = [ticket for ticket in still_open if ticket not in void]
    void_events = [TicketVoid(ticket.id) for ticket in void]
    opened_events = [TicketOpened(ticket_to_json(ticket)) for ticket in opened]
    reason = persisted_status(result.status, result.termination).reason
    waiting = Waiting(waiting_reason(reason), result.status_reason or reason)
    shown = _shown(outcome, result.termination)
    answer = await run.save(
        outcome.messages,
        state=waiting,
        reason=waiting.message,
        completes_step=True,
        events=[*void_events, *opened_events],
        applied=outcome.applied,
        opened=opened,
        void=[ticket.id for ticket in void],
        finish=finish_suspended(run.record, waiting, [*remaining, *opened], shown),
    )
    if isinstance(answer, CheckpointSaved):
        return Suspended()
    await run.save(
        outcome.messages,
        completes_step=True,
        events=opened_events,
        applied=outcome.applied,
        opened=opened,
    )
    run.tickets = list(await run.answers.unapplied())
    return None


async def _finish_after_turn(run: RemoteRun, outcome: TurnOutcome) -> RunFinished | None:
    """Finish the run with the remote's answer, unless it has messages for another turn."""
    result = outcome.result
    if run.unsent_messages and isinstance(result.status, Completed):
        # They entered the log after the remote had accepted this turn.
        await run.save(outcome.messages, completes_step=True, applied=outcome.applied)
        return None
    termination = _termination(result)
    answer = await run.save(
        outcome.messages,
        state=Done(termination, run.clock.now(), outcome.response or None),
        reason=result.status_reason or persisted_status(result.status, termination).reason,
        completes_step=True,
        applied=outcome.applied,
        # The remote still executes the turn, but its result is no longer read.
        notifies_remote=isinstance(result.status, TimedOut),
        finish=finish_done(run.record, termination, _shown(outcome, termination)),
    )
    if isinstance(answer, CheckpointSaved):
        return RunFinished(termination)
    await run.save(outcome.messages, completes_step=True, applied=outcome.applied)
    return None


async def finish_remote(
    run: RemoteRun, termination: Termination, *, applied: Sequence[TicketKey] = ()
) -> RunFinished:
    """Finish without waiting for the remote, and keep the streamed text of the open turn as a truncated
    message. A follow-up aborts the turn at the remote, so that its server can't delay a cancel."""
    termination = _without_secrets(run, termination)
    persisted = persisted_status(status_of_termination(termination), termination)
    streamed = "".join(run.streamed)
    messages = list(run.answers_in_turn)
    events: list[AgentEvent] = []
    if streamed:
        cut = _cut_short(run, streamed, termination)
        events.append(run.message_done(cut, len(messages)))
        messages.append(cut)
    response = streamed or last_text(run.record, run.log)
    shown: dict[str, Json] = {"response": response}
    answered = [ticket.id for ticket in run.tickets if ticket.status is not TicketStatus.OPEN]
    await run.save(
        messages,
        state=Done(termination, run.clock.now(), response or None),
        reason=persisted.reason,
        completes_step=run.in_step,
        events=events,
        applied=[*answered, *applied],
        notifies_remote=run.in_step or run.turn is not None,
        finish=finish_done(run.record, termination, shown),
    )
    return RunFinished(termination)


async def fail_remote(run: RemoteRun, code: str, detail: str) -> RunFinished:
    """Finish the run as failed, without waiting for the remote."""
    return await finish_remote(run, Failed(code, detail))


def _cut_short(run: RemoteRun, text: str, termination: Termination) -> Message:
    match termination:
        case Cancelled():
            reason = TruncationReason.CANCELLED
        case Stopped():
            reason = TruncationReason.STOPPED
        case _:
            reason = TruncationReason.FAILED
    return Message(id=run.answer_id(), role=Role.ASSISTANT, content=(Text(text),), cut_short=reason)


async def suspend_on_open_tickets(run: RemoteRun, still_open: Sequence[Ticket]) -> bool:
    """Suspend again on the open tickets; False when one was decided meanwhile."""
    waiting = Waiting(waiting_reason("input_required"), "input_required")
    answer = await run.save(
        state=waiting,
        reason=waiting.message,
        completes_step=run.in_step,
        finish=finish_suspended(run.record, waiting, still_open),
    )
    return isinstance(answer, CheckpointSaved)


async def void_withdrawn_tickets(run: RemoteRun, withdrawn: Sequence[Ticket]) -> bool:
    """Void the tickets; False when one was decided meanwhile."""
    answer = await run.save(
        events=[TicketVoid(ticket.id) for ticket in withdrawn],
        void=[ticket.id for ticket in withdrawn],
    )
    return isinstance(answer, CheckpointSaved)


def _redacted(run: RemoteRun, result: BackendResult) -> BackendResult:
    """The result, with the secrets of the configuration redacted from its error texts."""
    status, reason = result.status, result.status_reason
    return replace(
        result,
        status=BackendFailed(run.redact(status.message))
        if isinstance(status, BackendFailed)
        else status,
        termination=_without_secrets(run, result.termination),
        status_reason=None if reason is None else run.redact(reason),
    )


def _without_secrets(run: RemoteRun, termination: Termination) -> Termination:
    if isinstance(termination, Failed):
        return Failed(termination.code, run.redact(termination.detail))
    return termination


def _termination(result: BackendResult) -> Termination:
    match result.status:
        case BackendFailed(message):
            return Failed(REMOTE_FAILED, message)
        case BackendCancelled():
            return Cancelled(result.status_reason or "cancelled by the remote agent")
        case TimedOut():
            return Stopped(TIMEOUT, result.status_reason or "the remote agent took too long")
        case _:
            return result.termination


def _shown(outcome: TurnOutcome, termination: Termination) -> JsonObject:
    """The result as clients see it."""
    result = outcome.result
    shown: dict[str, Json] = {"response": outcome.response}
    if not result.output.is_empty:
        shown["output"] = output_to_json(result.output)
    return shown


async def end_idle_remote_run(
    idle: IdleRun, store: CheckpointStore, termination: Termination
) -> None:
    """End a remote agent's run that no worker executes.

    The commit enqueues an abort if the remote has accepted a turn.
    """
    record = idle.record
    run = RemoteRun(
        record=record,
        spec=AgentSpec(id=record.agent_id, model="none"),
        target=target_in(record),
        events=UNUSED,
        store=store,
        interruption=Interruption(),
        clock=idle.clock,
        log=idle.log,
        next_seq=idle.next_seq,
        start=ActivationStart(),
        answers=UNUSED,
        inbox=UNUSED,
        thread_state=idle.thread_state,
    )
    run.new_messages = previous_output(record)
    await finish_remote(run, termination, applied=idle.answered)
