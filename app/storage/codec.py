"""Converts between rows and domain types."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol

from msgspec.structs import asdict

from app.domain.ids import (
    AgentId,
    AgentVersion,
    CallId,
    MessageId,
    RunId,
    Tenant,
    ThreadId,
    WorkerId,
)
from app.domain.json_values import compact, is_unicode, storable
from app.domain.runs.pauses import PauseRequest
from app.domain.runs.runs import (
    Created,
    Done,
    Lineage,
    MessageInput,
    MessageOutput,
    Running,
    RunRecord,
    RunState,
    RunStatus,
    Usage,
    Waiting,
    WaitingReason,
)
from app.domain.runs.terminations import termination_from_json
from app.domain.threads.messages import (
    LoggedMessage,
    Message,
    MessageRange,
    Role,
    ToolCall,
    TruncationReason,
    Visibility,
    block_from_json,
    block_to_json,
)
from app.domain.threads.provider_data import provider_data_from_text, provider_data_to_text
from app.storage.postgres.named_parameters import Rows

_CUT_SHORT = "cut_short"
_RESULT = "result"
_PROVIDER_DATA = "provider_data"


class Row(Protocol):
    """A row: columns by name, with JSON decoded."""

    def __getitem__(self, key: str, /) -> Any: ...


def storable_json(value: Any) -> str:
    """JSON text that Postgres can store. If nothing has to be replaced, the value is encoded once."""
    text = compact(value)
    if "\\u0000" not in text and is_unicode(text):
        return text
    return compact(storable(value))


MESSAGE_COLUMNS = {
    "message_id": "uuid",
    "role": "text",
    "visibility": "text",
    "content": "jsonb",
    "tool_calls": "jsonb",
    "tool_call_id": "text",
    "produced_by_run": "uuid",
    "step_index": "int",
    "edited_arguments": "jsonb",
}
"""The columns of a message without its thread and seq, with their types."""


def message_columns(message: Message) -> dict[str, Any]:
    """The values of `MESSAGE_COLUMNS`; JSON as text."""
    return {
        "message_id": message.id,
        "role": message.role.value,
        "visibility": message.visibility.value,
        "content": storable_json(_content(message)),
        "tool_calls": storable_json([asdict(call) for call in message.tool_calls])
        if message.tool_calls
        else None,
        "tool_call_id": message.tool_call_id,
        "produced_by_run": message.run_id,
        "step_index": message.step_index,
        "edited_arguments": None
        if message.edited_arguments is None
        else storable_json(message.edited_arguments),
    }


MESSAGES = Rows("m", {"i": "int", "position": "int", **MESSAGE_COLUMNS})
"""`i` is the number of the run from 1 on, `position` the message's place among those of its run from 0 on."""


def insert_messages(tenant: str, thread_id: str, first_seq: str, at: str, sources: str = "") -> str:
    """SQL that inserts `MESSAGES`. The arguments are SQL expressions; `sources` joins what they refer to."""
    names = ", ".join(MESSAGE_COLUMNS)
    return f"""INSERT INTO messages (tenant, thread_id, seq, {names}, created_at)
    SELECT {tenant}, {thread_id}, {first_seq} + m.position, {", ".join(f"m.{n}" for n in MESSAGE_COLUMNS)}, {at}
    FROM {MESSAGES.sql} {sources}"""


def message_values(groups: Iterable[Sequence[Message]]) -> dict[str, list[Any]]:
    """The parameters of `MESSAGES`, for the messages of each run."""
    return MESSAGES.values(
        {"i": index, "position": position, **message_columns(message)}
        for index, messages in enumerate(groups, 1)
        for position, message in enumerate(messages)
    )


def _content(message: Message) -> list[dict[str, Any]]:
    """The blocks of a message, and last blocks for what only some messages have."""
    blocks = [block_to_json(block) for block in message.content]
    if message.provider_data is not None:
        blocks.append(
            {"type": _PROVIDER_DATA, "json": provider_data_to_text(message.provider_data)}
        )
    if message.cut_short is not None:
        blocks.append({"type": _CUT_SHORT, "reason": message.cut_short.value})
    if message.result is not None:
        blocks.append({"type": _RESULT, "result": message.result})
    return blocks


def message_of(row: Row) -> LoggedMessage:
    calls = row["tool_calls"] or ()
    content = row["content"]
    cut_short = None
    if content and content[-1].get("type") == _CUT_SHORT:
        *content, mark = content
        cut_short = TruncationReason(mark["reason"])
    result = None
    if content and content[-1].get("type") == _RESULT:
        *content, block = content
        result = block["result"]
    provider_data = None
    if content and content[-1].get("type") == _PROVIDER_DATA:
        *content, block = content
        provider_data = provider_data_from_text(block["json"])
    run_id = row["produced_by_run"]
    return LoggedMessage(
        seq=row["seq"],
        message=Message(
            id=MessageId(row["message_id"]),
            role=Role(row["role"]),
            content=tuple(block_from_json(block) for block in content),
            tool_calls=tuple(
                ToolCall(CallId(call["id"]), call["name"], call["arguments"]) for call in calls
            ),
            tool_call_id=None if row["tool_call_id"] is None else CallId(row["tool_call_id"]),
            visibility=Visibility(row["visibility"]),
            run_id=None if run_id is None else RunId(run_id),
            step_index=row["step_index"],
            edited_arguments=row["edited_arguments"],
            cut_short=cut_short,
            result=result,
            provider_data=provider_data,
        ),
        created_at=row["created_at"],
    )


def queued_message_of(raw: dict[str, Any]) -> Message:
    """A message of an input, which no run has produced."""
    return Message(
        id=MessageId(raw["id"]),
        role=Role(raw["role"]),
        content=tuple(block_from_json(block) for block in raw["content"]),
        visibility=Visibility(raw.get("visibility", Visibility.ALL)),
    )


def run_of(row: Row) -> RunRecord:
    return RunRecord(
        tenant=Tenant(row["tenant"]),
        id=RunId(row["id"]),
        thread_id=ThreadId(row["thread_id"]),
        agent_id=AgentId(row["agent_id"]),
        agent_version=AgentVersion(row["agent_version"]),
        state=_state_of(row),
        lineage=Lineage(
            root_run_id=RunId(row["root_run_id"]),
            parent_run_id=row["parent_run_id"],
            parent_thread_id=row["parent_thread_id"],
            parent_call_id=row["parent_call_id"],
            depth=row["depth"],
            retry_of=row["retry_of"],
        ),
        request=row["request"],
        input=_input_of(row),
        output=MessageOutput(
            _range_of(row["output_from"], row["output_to"]), _ids(row["output_ids"])
        ),
        steps=row["steps"],
        usage=Usage(row["input_tokens"], row["output_tokens"]),
        run_state=row["state"],
        metadata=row["metadata"],
        started_by=row["started_by"],
        attempt=row["attempt"],
        dispatch_id=row["dispatch_id"],
        losses=row["losses"],
        cancel_requested_at=row["cancel_requested_at"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        updated_at=row["updated_at"],
        events_from=row["events_from"],
        lost_seconds=row["lost_seconds"],
        unread_inputs=row["unread_inputs"],
        open_tasks=row["open_tasks"],
        rolled_back_by=row["rolled_back_by"],
        pause=_pause_of(row),
        thread_key=row["thread_key"],
    )


def _state_of(row: Row) -> RunState:
    match RunStatus(row["status"]):
        case RunStatus.CREATED:
            return Created(admitted=row["admitted"])
        case RunStatus.RUNNING:
            owner = row["owner"]
            return Running(None if owner is None else WorkerId(owner))
        case RunStatus.WAITING:
            return Waiting(
                WaitingReason(row["waiting_reason"]),
                row["waiting_message"] or "",
                row["waiting_until"],
            )
        case RunStatus.DONE:
            return Done(
                termination_from_json(row["termination"]),
                _time(row["finished_at"]),
                row["final_output"],
                row["structured_output"],
            )


def _pause_of(row: Row) -> PauseRequest | None:
    requested_at = row["pause_requested_at"]
    if requested_at is None:
        return None
    return PauseRequest(_time(requested_at), row["pause_requested_by"] or "", row["pause_reason"])


def _time(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise TypeError(f"a timestamp was expected, not {value!r}")
    return value


def _range_of(from_seq: int | None, to_seq: int | None) -> MessageRange | None:
    return None if from_seq is None or to_seq is None else MessageRange.of(from_seq, to_seq)


def _input_of(row: Row) -> MessageInput | None:
    ids = _ids(row["input_ids"])
    range_ = _range_of(row["input_from"], row["input_to"])
    return None if range_ is None and not ids else MessageInput(range_, ids)


def _ids(values: Sequence[str]) -> tuple[MessageId, ...]:
    return tuple(MessageId(value) for value in values)
