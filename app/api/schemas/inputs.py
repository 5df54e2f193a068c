"""Inputs, as clients send them and see them wait."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import AliasChoices, Field, model_validator
from pydantic.config import JsonDict

from app.api.schemas.common import RequestModel, ResponseModel, Str, Time, Uuid
from app.api.schemas.limits import LimitedRequest
from app.api.schemas.messages import NewMessage
from app.commands.inputs.send import AcceptedInput, InputMode
from app.domain.threads.inputs import Input
from app.domain.threads.messages import message_to_json

_EXAMPLE: JsonDict = {
    "messages": [{"role": "user", "content": "Leave the newest one, please"}],
    "mode": "steer",
}


class _Messages(LimitedRequest):
    model_config = {"json_schema_extra": {"examples": [_EXAMPLE]}}
    _starts_none: ClassVar = frozenset({InputMode.RESUME_OPEN_RUN})

    messages: list[NewMessage] = Field(min_length=1, max_length=1000)
    mode: InputMode = Field(
        InputMode.QUEUE,
        description="`queue`: a new run reads them, in line behind the others; `steer`: the run that "
        "is there does, before its next step; `interrupt_then_queue`: as `queue`, and the run that "
        "occupies the thread is cancelled; `resume_open_run`: the run that is there, which has to be "
        "waiting, reads them and goes on. One that waits for its background tasks is woken. Where a "
        "tool's own question (kind `input`) is all that is open, the text is its answer, as by the "
        "decision `respond`, which takes the scope `decisions:write`. No message ever approves a call: "
        "any other open ticket is 409 `decisions_needed`, with the tickets; a run that doesn't wait is "
        "409 `run_not_waiting`.",
    )

    @model_validator(mode="after")
    def _limits_are_of_a_new_run(self) -> Self:
        if self.limits is not None and self.mode in self._starts_none:
            raise ValueError(
                f"`limits` are those of a run that is started, and `{self.mode.value}` starts none"
            )
        return self


class InputsIn(_Messages):
    """Messages for a run that is there already, or for a new one behind it."""

    _starts_none: ClassVar = frozenset({InputMode.STEER, InputMode.RESUME_OPEN_RUN})


class ThreadMessagesIn(_Messages):
    """Messages for the run that occupies a thread, or for a new one."""

    agent_id: Str | None = Field(
        None,
        validation_alias=AliasChoices("agent_id", "agentId"),
        min_length=1,
        max_length=200,
        description="Who runs, should a run be started; else the agent that was last at work here.",
    )


class InputsAcceptedOut(ResponseModel):
    """The run that reads the messages; `input_ids` are in their order."""

    input_ids: list[str]
    run_id: str
    thread_id: str
    status: Literal["created", "running", "waiting", "done"] = Field(
        description="The run's status at that moment."
    )


def accepted_out(accepted: AcceptedInput) -> InputsAcceptedOut:
    return InputsAcceptedOut(
        input_ids=list(accepted.input_ids),
        run_id=accepted.run.id,
        thread_id=accepted.run.thread_id,
        status=accepted.run.status.value,
    )


class InputChangeIn(RequestModel):
    """What a run is to read instead."""

    message: NewMessage


class SeenIn(RequestModel):
    """A message as the client has seen it."""

    id: Uuid
    revision: int = Field(ge=1, le=999_999_999)


class ReorderIn(RequestModel):
    """Messages that wait, in the order in which they shall be read."""

    inputs: list[SeenIn] = Field(
        min_length=1,
        max_length=1000,
        description="They share out the places that they have now; others stay where they are. The "
        "messages of one run are read together, and those of the run that occupies the thread first.",
    )


class PendingInputOut(ResponseModel):
    """A message that waits for its run (`pending`); that its run has read (`consumed`), at its place in
    the log; or that was left unread when its run ended (`retracted`)."""

    id: str
    run_id: str
    thread_id: str
    status: Literal["pending", "consumed", "retracted"]
    message: dict[str, Any]
    revision: int = Field(
        description="Counts its changes, also of its place; `If-Match` names the one that is meant."
    )
    seq: int | None = Field(description="Its place in the thread's log, once it was read.")
    created_at: Time


def pending_input_out(waiting: Input) -> PendingInputOut:
    return PendingInputOut(
        id=waiting.id,
        run_id=waiting.run_id,
        thread_id=waiting.thread_id,
        status=waiting.status.value,
        message=message_to_json(waiting.message),
        revision=waiting.revision,
        seq=waiting.consumed_seq,
        created_at=waiting.created_at,
    )


class PlaceOut(ResponseModel):
    """Which message is read by which run, and its revision now."""

    id: str
    run_id: str
    revision: int


class OrderOut(ResponseModel):
    """All that waits on the thread, in the order in which it will be read."""

    items: list[PlaceOut]


def order_out(waiting: Sequence[Input]) -> OrderOut:
    return OrderOut(
        items=[PlaceOut(id=each.id, run_id=each.run_id, revision=each.revision) for each in waiting]
    )
