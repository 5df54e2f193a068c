"""One turn of a remote agent: its request, the events that it emits, and the messages that it adds."""

from dataclasses import dataclass
from time import monotonic

import structlog

from app import telemetry
from app.backends.base import Backend, BackendError, Turn
from app.backends.remote.artifacts import with_files
from app.backends.remote.endings import TurnOutcome, fail_remote, save_turn_outcome
from app.backends.remote.questions import (
    answer_as_message,
    answer_to_remote,
    was_answered_by,
    without_answers,
)
from app.backends.remote.run import RemoteRun
from app.domain.agents.backend_results import BackendResult, Completed
from app.domain.events.step_events import InferenceComplete, StreamReset, TextDelta
from app.domain.events.tool_call_events import ActivitySnapshot
from app.domain.json_values import Json, JsonObject
from app.domain.structs import replace
from app.domain.threads.messages import Message, Role, Text, Visibility
from app.domain.tickets.tickets import Ticket
from app.runtime.endings import Ending
from app.runtime.inference.media_files import with_bytes

MAX_STREAMED_CHARACTERS = 16_000_000
"""Maximum number of characters that one turn may stream, including voided ones."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class LiveTurnEmitter:
    """Emits what a backend produces in one turn as events of the run."""

    run: RemoteRun
    _streamed_characters: int = 0

    async def bind(self, binding: JsonObject) -> None:
        run = self.run
        run.binding = binding
        if not run.is_turn_accepted:
            run.turn = run.turn_key
            run.mark_log_as_sent()
        await run.save()
        run.interruption.hand_over_if_free(True)

    def text(self, delta: str) -> None:
        if not delta:
            return
        self._streamed_characters += len(delta)
        if self._streamed_characters > MAX_STREAMED_CHARACTERS:
            raise BackendError(
                "remote_too_long",
                f"The remote agent sent over {MAX_STREAMED_CHARACTERS} characters in one turn.",
            )
        self.run.streamed.append(delta)
        self.run.emit(TextDelta(delta))

    def start_over(self, reason: str) -> None:
        if self.run.streamed:
            self.run.streamed.clear()
            self.run.emit(StreamReset(reason))

    def activity(self, activity_type: str, content: Json) -> None:
        self.run.emit(ActivitySnapshot(self.run.record.id, activity_type, content, True))

    async def wait_for_capacity(self) -> None:
        await self.run.events.wait_for_capacity()

    def complete(self, response: str) -> None:
        """Emit the rest of the answer, or the whole answer if it doesn't continue the streamed text."""
        streamed = "".join(self.run.streamed)
        if not response.startswith(streamed):
            self.start_over("replaced")
            streamed = ""
        self.text(response[len(streamed) :])


async def run_turn(
    run: RemoteRun, backend: Backend, answered: list[Ticket], *, joins_turn: bool = False
) -> Ending | None:
    """Execute one turn and save its outcome; None when another turn must follow.

    With `joins_turn`, the run joins the remote's open turn and sends nothing: its question was answered
    at the remote.
    """
    if not run.in_step:
        run.begin_step()
    logged = [entry.message for entry in run.log]
    answers = [
        answer_as_message(ticket, run.new_message_id())
        for ticket in answered
        if not was_answered_by(ticket, logged)
    ]
    run.answers_in_turn, run.streamed = answers, []
    emitter = LiveTurnEmitter(run)
    turn = await _turn(run, answers, answered, joins_turn)
    run.interruption.hand_over_if_free(turn.joins)
    began = monotonic()
    try:
        async with run.interruption.interruptible():
            result = await backend.execute_root(turn, emitter)
            output = await with_files(run.artifact_files, result.output)
            result = replace(result, output=output)
        response = result.output.text_or(result.response or "")
        emitter.complete(response)
    except BackendError as error:
        log.warning("remote_failed", code=error.code, detail=error.detail)
        return await fail_remote(run, error.code, error.detail)
    finally:
        run.interruption.hand_over_if_free(False)
    telemetry.steps.labels(run.spec.id).inc()
    if not turn.joins:
        run.mark_log_as_sent()
    run.sent_answers += [message.id for message in answers]
    _apply_output(run, result, monotonic() - began)
    messages = list(answers)
    if response:
        content = (Text(response),)
        answer = Message(id=run.answer_id(), role=Role.ASSISTANT, content=content)
        run.emit(run.message_done(answer, len(messages)))
        messages.append(answer)
    return await save_turn_outcome(run, TurnOutcome(result, response, messages, answered))


def _apply_output(run: RemoteRun, result: BackendResult, seconds: float) -> None:
    """Store the parts of the result other than its text."""
    if result.binding is not None:
        run.binding = result.binding
    run.new_messages = result.output
    if isinstance(result.status, Completed):
        run.emit(InferenceComplete(run.spec.model or run.spec.id, round(seconds * 1000)))


async def _turn(
    run: RemoteRun, answers: list[Message], answered: list[Ticket], joins_turn: bool
) -> Turn:
    record = run.record
    joins = joins_turn or run.is_turn_accepted
    unsent = [] if joins else await with_bytes(run.files, run.unsent_messages)
    seen = [entry.message for entry in run.log if entry.message.visibility is Visibility.ALL]
    return Turn(
        agent_id=run.spec.id,
        run_id=record.id,
        thread_id=record.thread_id,
        key=run.turn_key,
        messages=[*seen, *run.answers_in_turn],
        new_messages=[] if joins else [*answers, *unsent],
        binding=run.binding,
        joins=joins,
        is_continuation=run.steps > 0,
        answers=[answer_to_remote(ticket) for ticket in answered],
        messages_besides_answers=without_answers(answered, unsent),
    )
