"""A turn of a remote agent: what it is asked, how it speaks meanwhile, and what is made of its answer."""

from dataclasses import dataclass
from time import monotonic

import structlog

from app import telemetry
from app.backends.base import Backend, BackendError, Turn
from app.backends.remote.endings import TurnOutcome, finish_remote, save_turn_outcome
from app.backends.remote.questions import answer_as_message, answer_to_remote, was_answered_by
from app.backends.remote.run import RemoteRun
from app.domain.agents.backend_results import BackendResult, Completed
from app.domain.events.run_events import (
    ActivitySnapshot,
    InferenceComplete,
    StepStart,
    StreamReset,
    TextDelta,
)
from app.domain.json_values import Json, JsonObject
from app.domain.runs.terminations import Failed
from app.domain.threads.messages import Message, Role, Text, Visibility
from app.domain.tickets.tickets import Ticket
from app.runtime.endings import Ending

MAX_STREAMED_CHARACTERS = 16_000_000
"""Characters of one turn: whoever never stops is stopped."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class LiveTurnEmitter:
    """What a backend says in one turn, said as the run's own."""

    run: RemoteRun
    _said: int = 0
    """Characters in all, also of what was taken back."""

    async def bind(self, binding: JsonObject) -> None:
        run = self.run
        run.binding, run.turn = binding, run.turn_key
        await run.save()
        run.interruption.hand_over_if_free(True)

    def text(self, delta: str) -> None:
        if not delta:
            return
        self._said += len(delta)
        if self._said > MAX_STREAMED_CHARACTERS:
            raise BackendError(
                "remote_too_long",
                f"The remote agent says over {MAX_STREAMED_CHARACTERS} characters in one turn.",
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
        """Whatever of the answer hasn't been said yet; an answer that became another one is said anew."""
        spoken = "".join(self.run.streamed)
        if not response.startswith(spoken):
            self.start_over("replaced")
            spoken = ""
        self.text(response[len(spoken) :])


async def run_turn(
    run: RemoteRun, backend: Backend, answered: list[Ticket], *, goes_on_there: bool = False
) -> Ending | None:
    """One turn and what it leads to; None when there is more to tell the remote. One that goes on there has
    nothing to tell: what it waited for has been settled by somebody else."""
    if not run.in_step:
        run.in_step = True
        run.emit(StepStart(run.new_message_id()))
    news = _news(run)
    answers = [
        answer_as_message(ticket, run.new_message_id())
        for ticket in answered
        if not was_answered_by(ticket, news)
    ]
    run.answers_in_turn, run.streamed = answers, []
    voice = LiveTurnEmitter(run)
    turn = _turn(run, [*answers, *news], answered, goes_on_there)
    run.interruption.hand_over_if_free(turn.joins)
    began = monotonic()
    try:
        async with run.interruption.interruptible():
            result = await backend.execute_root(turn, voice)
        response = result.output.text_or(result.response or "")
        voice.complete(response)
    except BackendError as error:
        log.warning("remote_failed", code=error.code, detail=error.detail)
        return await finish_remote(run, Failed(error.code, error.detail))
    finally:
        run.interruption.hand_over_if_free(False)
    telemetry.steps.labels(run.spec.id).inc()
    if not goes_on_there:
        run.saved_events = run.next_seq - 1
    _keep(run, result, monotonic() - began)
    messages = list(answers)
    if response:
        said = Message(id=run.new_message_id(), role=Role.ASSISTANT, content=(Text(response),))
        messages.append(said)
    return await save_turn_outcome(run, TurnOutcome(result, response, messages, answered))


def _keep(run: RemoteRun, result: BackendResult, seconds: float) -> None:
    """What there is of the result beside its answer in words."""
    if result.binding is not None:
        run.binding = result.binding
    run.new_messages = result.output
    if isinstance(result.status, Completed):
        run.emit(InferenceComplete(run.spec.model or run.spec.id, round(seconds * 1000)))


def _news(run: RemoteRun) -> list[Message]:
    """Messages of users that are in the log and that the remote doesn't know yet."""
    unknown = [entry.message for entry in run.log if entry.seq > run.saved_events]
    return [
        message
        for message in unknown
        if message.role is Role.USER and message.visibility is Visibility.ALL
    ]


def _turn(run: RemoteRun, news: list[Message], answered: list[Ticket], goes_on_there: bool) -> Turn:
    record = run.record
    seen = [entry.message for entry in run.log if entry.message.visibility is Visibility.ALL]
    return Turn(
        agent_id=run.spec.id,
        run_id=record.id,
        thread_id=record.thread_id,
        key=run.turn_key,
        messages=[*seen, *run.answers_in_turn],
        new_messages=news,
        binding=run.binding,
        joins=goes_on_there or run.turn == run.turn_key,
        is_continuation=run.steps > 0,
        answers=[answer_to_remote(ticket) for ticket in answered],
    )
