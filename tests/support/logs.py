"""Short constructors for the messages of a log, with readable ids."""

from app.domain.ids import CallId, MessageId, RunId
from app.domain.json_values import Json, JsonObject
from app.domain.threads.messages import LoggedMessage, Message, Role, Text, ToolCall, Visibility


def message(
    id: str,
    role: Role,
    text: str = "",
    *calls: ToolCall,
    answers: str | None = None,
    run: str | None = None,
    step: int | None = None,
    visibility: Visibility = Visibility.ALL,
    edited_arguments: JsonObject | None = None,
) -> Message:
    return Message(
        id=MessageId(id),
        role=role,
        content=(Text(text),) if text else (),
        tool_calls=calls,
        tool_call_id=None if answers is None else CallId(answers),
        visibility=visibility,
        run_id=None if run is None else RunId(run),
        step_index=step,
        edited_arguments=edited_arguments,
    )


def call(id: str, name: str = "add", arguments: Json = None) -> ToolCall:
    return ToolCall(CallId(id), name, {} if arguments is None else arguments)


def log_of(*messages: Message, first: int = 1) -> list[LoggedMessage]:
    return [LoggedMessage(seq, entry) for seq, entry in enumerate(messages, first)]
