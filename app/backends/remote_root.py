"""The life of a run whose agent is remote: turns there, and the same promises as for a local run.

    start or continue ─► [ turn ─► its message ]* ─► finish | suspend | hand over

A turn is a step. The remote's text streams as it comes; what it waits for is a ticket here, and the
answer is its next turn. A crash joins the turn that the remote has accepted, and begins no other.
"""

import asyncio
from dataclasses import dataclass, field
from time import monotonic
from typing import assert_never

import structlog

from app import telemetry
from app.backends.base import Abort, Backend, BackendError, Turn
from app.backends.remote_questions import (
    answer_as_message,
    answer_to_remote,
    new_tickets,
    questions_of,
)
from app.backends.remote_run import RemoteRun
from app.domain.backends import (
    WAITING_STATUSES,
    BackendCancelled,
    BackendFailed,
    BackendResult,
    Completed,
    TimedOut,
    durable,
    output_to_json,
    status_of_termination,
)
from app.domain.checkpoints import Saved
from app.domain.errors import OwnershipLost
from app.domain.events import (
    ActivitySnapshot,
    InferenceComplete,
    RunFinish,
    RunStart,
    StepStart,
    StreamReset,
    TextDelta,
    TicketOpened,
)
from app.domain.identity import run_identity
from app.domain.json_values import Json, JsonObject
from app.domain.messages import Message, Role, Text, Visibility
from app.domain.runs import (
    SUSPENDED,
    Cancelled,
    Done,
    Failed,
    RunStatus,
    Stopped,
    Termination,
    Waiting,
    termination_to_json,
    waiting_reason,
)
from app.domain.tickets import Ticket, TicketStatus, ticket_to_json, waiting_to_json
from app.runtime.cancellation import Interrupted, Wish
from app.runtime.endings import Ending, Finished, HandedOver, Suspended

REMOTE_FAILED = "remote_failed"
TIMEOUT = "timeout"
ABORT_WITHIN = 10.0
"""Seconds that a cancel waits for the remote; the run is cancelled all the same."""

log = structlog.get_logger(__name__)


async def advance_remote(run: RemoteRun, backend: Backend) -> Ending:
    """Execute a claimed run until it is done, must wait, or is wanted elsewhere."""
    try:
        return await _advance(run, backend)
    except Interrupted as interrupted:
        match interrupted.wish:
            case Wish.CANCEL:
                await _abort(run, backend)
                return await end(run, Cancelled(run.interruption.reason))
            case Wish.HAND_OVER:
                return HandedOver()
            case Wish.ABANDON:
                raise OwnershipLost(run.record.id) from None
            case Wish.OUT_OF_TIME:
                raise AssertionError("a run that is executed elsewhere has no limits") from None
            case _:
                assert_never(interrupted.wish)


async def _advance(run: RemoteRun, backend: Backend) -> Ending:
    _begin(run)
    run.interruption.check()
    while True:
        answered = [ticket for ticket in run.tickets if ticket.status is not TicketStatus.OPEN]
        if not answered and (still_open := list(run.tickets)):
            if await _wait(run, still_open):
                return Suspended()
            run.tickets = list(await run.answers.unapplied())
            continue
        if run.unread_inputs:
            await run.read_inbox()
        run.interruption.check()
        ending = await _take_turn(run, backend, answered)
        if ending is not None:
            return ending


def _begin(run: RemoteRun) -> None:
    """Open a new activation, or void what a lost worker left half said and go on in the old one."""
    if not run.start.continues:
        run.say(RunStart(run_identity(run.record), run.record.lineage.parent_run_id))
        return
    run.in_step = run.start.step_begun
    if run.in_step:
        run.say(StreamReset("takeover"))


async def end(run: RemoteRun, termination: Termination) -> Finished:
    """Finish without another word of the remote's; what it had said so far is in the events."""
    kept = durable(status_of_termination(termination), termination)
    await run.save(
        state=Done(termination, run.clock.now(), None),
        reason=kept.reason,
        completes_step=run.in_step,
        applied=[ticket.key for ticket in run.tickets if ticket.status is not TicketStatus.OPEN],
        finish=RunFinish(
            identity=run_identity(run.record),
            termination=termination_to_json(termination),
            result={"response": "", "status": kept.label, "status_reason": kept.reason},
        ),
    )
    return Finished(termination)


async def _abort(run: RemoteRun, backend: Backend) -> None:
    """Tell the remote, if it can be told; that it doesn't listen changes nothing here."""
    supported = backend.capabilities.cancellation
    if not supported.supports_remote_abort or run.binding is None:
        return
    record = run.record
    abort = Abort(
        agent_id=run.spec.id,
        run_id=record.id,
        thread_id=record.thread_id,
        key=run.turn_key,
        binding=run.binding,
    )
    try:
        async with asyncio.timeout(ABORT_WITHIN):
            await backend.abort(abort)
    except (BackendError, TimeoutError) as error:
        log.warning("remote_abort_failed", run_id=record.id, error=repr(error)[:300])


# --- one turn -------------------------------------------------------------------------------------


async def _take_turn(run: RemoteRun, backend: Backend, answered: list[Ticket]) -> Ending | None:
    """One turn and what it leads to; None when there is more to tell the remote."""
    if not run.in_step:
        run.in_step = True
        run.say(StepStart(run.new_message_id()))
    answers = [answer_as_message(ticket, run.new_message_id()) for ticket in answered]
    voice = TurnVoice(run)
    turn = _turn(run, answers, answered)
    run.interruption.leave_freely(turn.joins)
    began = monotonic()
    try:
        async with run.interruption.interruptible():
            result = await backend.execute_root(turn, voice)
    except BackendError as error:
        log.warning("remote_failed", code=error.code, detail=error.detail)
        return await end(run, Failed(error.code, error.detail))
    finally:
        run.interruption.leave_freely(False)
    if isinstance(result.status, TimedOut):
        # Nobody will fetch what it is still at.
        run.binding = result.binding or run.binding
        await _abort(run, backend)
    telemetry.steps.labels(run.spec.id).inc()
    run.told = run.next_seq - 1
    return await _settle(run, result, voice, answers, answered, monotonic() - began)


def _turn(run: RemoteRun, answers: list[Message], answered: list[Ticket]) -> Turn:
    record = run.record
    seen = [entry for entry in run.log if entry.message.visibility is Visibility.ALL]
    news = [e.message for e in seen if e.seq > run.told and e.message.role is Role.USER]
    return Turn(
        agent_id=run.spec.id,
        run_id=record.id,
        thread_id=record.thread_id,
        key=run.turn_key,
        messages=[*(entry.message for entry in seen), *answers],
        new_messages=[*answers, *news],
        binding=run.binding,
        joins=run.turn == run.turn_key,
        is_continuation=run.steps > 0,
        answers=[answer_to_remote(ticket) for ticket in answered],
    )


@dataclass(slots=True)
class TurnVoice:
    """What a backend says in one turn, said as the run's own."""

    run: RemoteRun
    spoken: str = ""
    _pieces: list[str] = field(default_factory=list)

    async def accepted(self, binding: JsonObject) -> None:
        run = self.run
        run.binding, run.turn = binding, run.turn_key
        await run.save()
        run.interruption.leave_freely(True)

    def text(self, delta: str) -> None:
        if delta:
            self.spoken += delta
            self.run.say(TextDelta(delta))

    def starts_over(self, reason: str) -> None:
        if self.spoken:
            self.spoken = ""
            self.run.say(StreamReset(reason))

    def activity(self, activity_type: str, content: Json) -> None:
        self.run.say(ActivitySnapshot(self.run.record.id, activity_type, content, True))

    async def room(self) -> None:
        await self.run.events.room()

    def complete(self, response: str) -> None:
        """Whatever of the answer hasn't been said yet; an answer that became another one is said anew."""
        if not response.startswith(self.spoken):
            self.starts_over("replaced")
        self.text(response[len(self.spoken) :])


# --- what a turn leads to -------------------------------------------------------------------------


async def _settle(
    run: RemoteRun,
    result: BackendResult,
    voice: TurnVoice,
    answers: list[Message],
    answered: list[Ticket],
    seconds: float,
) -> Ending | None:
    response = result.output.text_or(result.response or "")
    voice.complete(response)
    if result.binding is not None:
        run.binding = result.binding
    run.made = result.output
    if isinstance(result.status, Completed):
        run.say(InferenceComplete(_name_of(run), round(seconds * 1000)))
    messages = list(answers)
    if response:
        said = Message(id=run.new_message_id(), role=Role.ASSISTANT, content=(Text(response),))
        messages.append(said)
    applied = [ticket.key for ticket in answered]
    if isinstance(result.status, WAITING_STATUSES):
        still_open = [ticket for ticket in run.tickets if ticket.status is TicketStatus.OPEN]
        opened = new_tickets(run, questions_of(run, result), still_open)
        reason = durable(result.status, result.termination).reason
        waiting = Waiting(waiting_reason(reason), result.status_reason or reason)
        answer = await run.save(
            messages,
            state=waiting,
            reason=waiting.message,
            completes_step=True,
            said=[TicketOpened(ticket_to_json(ticket)) for ticket in opened],
            applied=applied,
            opened=opened,
            finish=_finish(run, result, response, [*still_open, *opened], waiting),
        )
        if isinstance(answer, Saved):
            return Suspended()
        # Another question was answered meanwhile: the remote gets that at once.
        await run.save(
            messages,
            completes_step=True,
            said=[TicketOpened(ticket_to_json(ticket)) for ticket in opened],
            applied=applied,
            opened=opened,
        )
        run.tickets = list(await run.answers.unapplied())
        return None
    termination = _termination(result)
    answer = await run.save(
        messages,
        state=Done(termination, run.clock.now(), response or None),
        reason=result.status_reason or durable(result.status, termination).reason,
        completes_step=True,
        applied=applied,
        finish=_finish(run, result, response),
    )
    if isinstance(answer, Saved):
        return Finished(termination)
    # Something came in meanwhile: it is told in another turn.
    await run.save(messages, completes_step=True, applied=applied)
    return None


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


def _name_of(run: RemoteRun) -> str:
    return run.spec.model or run.target


def _finish(
    run: RemoteRun,
    result: BackendResult,
    response: str,
    tickets: list[Ticket] | None = None,
    waiting: Waiting | None = None,
) -> RunFinish:
    termination = _termination(result)
    kept = durable(result.status, termination)
    shown: dict[str, Json] = {
        "response": response,
        "status": kept.label,
        "status_reason": result.status_reason or kept.reason,
    }
    if not result.output.is_empty:
        shown["output"] = output_to_json(result.output)
    rests = kept.status is RunStatus.WAITING and waiting is not None
    return RunFinish(
        identity=run_identity(run.record),
        termination=SUSPENDED if rests else termination_to_json(termination),
        result=shown,
        waiting=None
        if waiting is None
        else waiting_to_json(
            waiting.reason, waiting.message, tickets or [], run.record.dispatch_id
        ),
    )


async def _wait(run: RemoteRun, still_open: list[Ticket]) -> bool:
    """Go back to rest with a question that nobody has answered; False when somebody just has."""
    waiting = Waiting(waiting_reason("input_required"), "input_required")
    answer = await run.save(
        state=waiting,
        reason=waiting.message,
        completes_step=run.in_step,
        finish=RunFinish(
            identity=run_identity(run.record),
            termination=SUSPENDED,
            waiting=waiting_to_json(
                waiting.reason, waiting.message, still_open, run.record.dispatch_id
            ),
        ),
    )
    return isinstance(answer, Saved)


async def write_off_remote(run: RemoteRun, backend: Backend, code: str, detail: str) -> Finished:
    """End a claimed run without another try."""
    _begin(run)
    await _abort(run, backend)
    return await end(run, Failed(code, detail))
