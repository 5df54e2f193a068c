"""Endings of a remote agent's run: how a turn ends it, lets it rest, or leads to another one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.backends.remote.questions import decided_remotely, new_tickets, questions_of
from app.backends.remote.run import RemoteRun
from app.domain.agents.backend_results import (
    WAITING_STATUSES,
    BackendCancelled,
    BackendFailed,
    BackendResult,
    TimedOut,
    output_to_json,
    persisted_status,
    status_of_termination,
)
from app.domain.checkpoints import CheckpointSaved
from app.domain.events.command_events import TicketOpened, TicketVoid
from app.domain.events.run_finish import finish_done, finish_suspended
from app.domain.ids import TicketKey
from app.domain.json_values import Json, JsonObject
from app.domain.runs.runs import Done, Waiting, waiting_reason
from app.domain.runs.terminations import Cancelled, Failed, Stopped, Termination
from app.domain.threads.messages import Message, Role, Text, TruncationReason
from app.domain.tickets.tickets import Ticket, TicketStatus, ticket_to_json
from app.runtime.endings import Ending, RunFinished, Suspended, last_words

REMOTE_FAILED = "remote_failed"
TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """What a turn has come to, and what of it belongs in the log."""

    result: BackendResult
    response: str
    messages: Sequence[Message]
    answered: Sequence[Ticket]

    @property
    def applied(self) -> list[TicketKey]:
        return [ticket.id for ticket in self.answered]


async def save_turn_outcome(run: RemoteRun, outcome: TurnOutcome) -> Ending | None:
    """Save a turn and where it leaves the run; None when there is more to tell the remote."""
    outcome = replace(outcome, result=_redacted(run, outcome.result))
    if isinstance(outcome.result.status, WAITING_STATUSES):
        return await _ask(run, outcome)
    return await _end_speaking(run, outcome)


async def _ask(run: RemoteRun, outcome: TurnOutcome) -> Suspended | None:
    """Wait for people, unless one of them has answered an older question meanwhile."""
    result = outcome.result
    still_open = [ticket for ticket in run.tickets if ticket.status is TicketStatus.OPEN]
    asked = questions_of(run, result)
    opened, void = new_tickets(run, asked, still_open), decided_remotely(asked, still_open)
    kept = [ticket for ticket in still_open if ticket not in void]
    settled = [TicketVoid(ticket.id, ticket.name) for ticket in void]
    said = [TicketOpened(ticket_to_json(ticket)) for ticket in opened]
    reason = persisted_status(result.status, result.termination).reason
    waiting = Waiting(waiting_reason(reason), result.status_reason or reason)
    shown = _shown(outcome, result.termination)
    answer = await run.save(
        outcome.messages,
        state=waiting,
        reason=waiting.message,
        completes_step=True,
        said=[*settled, *said],
        applied=outcome.applied,
        opened=opened,
        void=[ticket.id for ticket in void],
        finish=finish_suspended(run.record, waiting, [*kept, *opened], shown),
    )
    if isinstance(answer, CheckpointSaved):
        return Suspended()
    await run.save(
        outcome.messages,
        completes_step=True,
        said=said,
        applied=outcome.applied,
        opened=opened,
    )
    run.tickets = list(await run.answers.unapplied())
    return None


async def _end_speaking(run: RemoteRun, outcome: TurnOutcome) -> RunFinished | None:
    """End with what the remote has said, unless something has come in that it should hear."""
    result = outcome.result
    termination = _termination(result)
    answer = await run.save(
        outcome.messages,
        state=Done(termination, run.clock.now(), outcome.response or None),
        reason=result.status_reason or persisted_status(result.status, termination).reason,
        completes_step=True,
        applied=outcome.applied,
        # Nobody will fetch what it is still at.
        tells_remote=isinstance(result.status, TimedOut),
        finish=finish_done(run.record, termination, _shown(outcome, termination)),
    )
    if isinstance(answer, CheckpointSaved):
        return RunFinished(termination)
    await run.save(outcome.messages, completes_step=True, applied=outcome.applied)
    return None


async def finish_remote(
    run: RemoteRun, termination: Termination, *, applied: Sequence[TicketKey] = ()
) -> RunFinished:
    """Finish without waiting for the remote, and keep what it has streamed of the open turn as a message
    that was cut short. A follow-up tells the remote of the end, so that its server can't delay a cancel."""
    termination = _without_secrets(run, termination)
    kept = persisted_status(status_of_termination(termination), termination)
    streamed = "".join(run.streamed)
    messages = list(run.answers_in_turn)
    if streamed:
        messages.append(_cut_short(run, streamed, termination))
    response = streamed or last_words(run.record, run.log)
    shown = {"response": response, "status": kept.label, "status_reason": kept.reason}
    answered = [ticket.id for ticket in run.tickets if ticket.status is not TicketStatus.OPEN]
    await run.save(
        messages,
        state=Done(termination, run.clock.now(), response or None),
        reason=kept.reason,
        completes_step=run.in_step,
        applied=[*answered, *applied],
        tells_remote=run.in_step or run.turn is not None,
        finish=finish_done(run.record, termination, shown),
    )
    return RunFinished(termination)


def _cut_short(run: RemoteRun, text: str, termination: Termination) -> Message:
    match termination:
        case Cancelled():
            reason = TruncationReason.CANCELLED
        case Stopped():
            reason = TruncationReason.STOPPED
        case _:
            reason = TruncationReason.FAILED
    return Message(
        id=run.new_message_id(), role=Role.ASSISTANT, content=(Text(text),), cut_short=reason
    )


async def suspend_on_open_tickets(run: RemoteRun, still_open: Sequence[Ticket]) -> bool:
    """Go back to rest with a question that nobody has answered; False when somebody just has."""
    waiting = Waiting(waiting_reason("input_required"), "input_required")
    answer = await run.save(
        state=waiting,
        reason=waiting.message,
        completes_step=run.in_step,
        finish=finish_suspended(run.record, waiting, still_open),
    )
    return isinstance(answer, CheckpointSaved)


async def void_withdrawn_tickets(run: RemoteRun, settled: Sequence[Ticket]) -> bool:
    """Nobody needs to answer these any more; False when somebody just has."""
    answer = await run.save(
        said=[TicketVoid(ticket.id, ticket.name) for ticket in settled],
        void=[ticket.id for ticket in settled],
    )
    return isinstance(answer, CheckpointSaved)


def _redacted(run: RemoteRun, result: BackendResult) -> BackendResult:
    """The result, with no secret of ours in what the remote says about errors."""
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
    kept = persisted_status(result.status, termination)
    shown: dict[str, Json] = {
        "response": outcome.response,
        "status": kept.label,
        "status_reason": result.status_reason or kept.reason,
    }
    if not result.output.is_empty:
        shown["output"] = output_to_json(result.output)
    return shown
