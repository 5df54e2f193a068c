"""Inputs: messages for existing runs and threads."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AliasPath, BeforeValidator, Field, model_validator
from pydantic.config import JsonDict

from app.api.schemas.common import RequestModel, ResponseModel, Str, Time
from app.api.schemas.limits import LimitedRequest
from app.api.schemas.messages import DifferentIds, NewMessage
from app.commands.inputs.send import InputMode
from app.domain.threads.messages import message_to_json

_EXAMPLE: JsonDict = {
    "messages": [{"role": "user", "content": "Leave the newest one, please"}],
    "mode": "steer",
}


class MessagesRequest(LimitedRequest):
    """Messages, and what to do with them."""

    model_config = {"json_schema_extra": {"examples": [_EXAMPLE]}}
    _modes_without_start: ClassVar = frozenset({InputMode.RESUME_OPEN_RUN})

    messages: Annotated[
        list[NewMessage], Field(min_length=1, max_length=1000, fail_fast=True), DifferentIds
    ]
    mode: InputMode = Field(
        InputMode.QUEUE,
        description="`queue`: a new run reads the messages, queued behind the others. `steer`: the open "
        "run reads them before its next step. `interrupt_then_queue`: as `queue`, and the open run is "
        "cancelled. `resume_open_run`: the open run, which must be waiting, reads them and continues; "
        "409 `run_not_waiting` otherwise. If its only open ticket is a tool's question (kind `input`), "
        "the text answers it, which needs the scope `decisions:write`. Messages never approve calls: "
        "with other open tickets it is 409 `decisions_needed`.",
    )

    @model_validator(mode="after")
    def _limits_are_of_a_new_run(self) -> Self:
        if self.limits is not None and self.mode in self._modes_without_start:
            raise ValueError(
                f"`limits` are for a new run, and the mode `{self.mode.value}` starts none"
            )
        return self


class InputsIn(MessagesRequest):
    """Messages for a run, or for a new one behind it."""

    _modes_without_start: ClassVar = frozenset({InputMode.STEER, InputMode.RESUME_OPEN_RUN})


class ThreadMessagesIn(MessagesRequest):
    """Messages for the run that occupies a thread, or for a new one."""

    agent_id: Str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="The agent of a new run. By default the agent that last ran on the thread.",
    )


class InputsAcceptedOut(ResponseModel):
    """The run that reads the messages; `input_ids` are in their order, without messages that the thread had
    already."""

    input_ids: list[str]
    run_id: str = Field(validation_alias=AliasPath("run", "id"))
    thread_id: str = Field(validation_alias=AliasPath("run", "thread_id"))
    status: Literal["created", "running", "waiting", "done"] = Field(
        validation_alias=AliasPath("run", "status"),
        description="Status of the run when it got the messages.",
    )


class InputChangeIn(RequestModel):
    """The new message."""

    model_config = {
        "json_schema_extra": {
            "examples": [{"message": {"role": "user", "content": "Only last month's report"}}]
        }
    }

    message: NewMessage

    @model_validator(mode="after")
    def _keeps_its_id(self) -> Self:
        if self.message.id is not None:
            raise ValueError("a changed message keeps its id; leave `message.id` out")
        return self


class PendingInputOut(ResponseModel):
    """A message for a run. `pending`: the run will read it. `consumed`: the run has read it, and `seq` is its
    position in the log. `retracted`: a client retracted it, or the run ended without reading it."""

    id: str
    run_id: str
    thread_id: str
    status: Literal["pending", "consumed", "retracted"]
    message: Annotated[dict[str, Any], BeforeValidator(message_to_json)]
    revision: int = Field(description="Incremented by each change. Send it as `If-Match`.")
    seq: int | None = Field(
        validation_alias="consumed_seq",
        description="Position in the thread's log; null until the run has read it.",
    )
    retracted_by: str | None = Field(
        description="Subject who retracted it; null if it isn't retracted, or if its run ended without reading it."
    )
    created_at: Time
