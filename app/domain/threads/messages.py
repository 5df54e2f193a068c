"""Messages: what a thread's log is made of, and what a model reads and writes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypeAlias, assert_never

from app.domain.ids import CallId, MessageId, RunId
from app.domain.json_values import Json, JsonObject


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Visibility(StrEnum):
    ALL = "all"
    INTERNAL = "internal"
    """The model reads it; listings leave it out unless asked."""


class TruncationReason(StrEnum):
    """Why an assistant's message stops in the middle."""

    CANCELLED = "cancelled"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class MessageRange:
    """A stretch of a log, both ends included, counted from 1."""

    from_seq: int
    to_seq: int

    @staticmethod
    def of(from_seq: int, to_seq: int) -> "MessageRange | None":
        """The range, or nothing when its bounds don't make one."""
        return MessageRange(from_seq, to_seq) if 1 <= from_seq <= to_seq else None

    def hull(self, seq: int) -> "MessageRange":
        return MessageRange(min(self.from_seq, seq), max(self.to_seq, seq))

    def __len__(self) -> int:
        return self.to_seq - self.from_seq + 1


@dataclass(frozen=True, slots=True)
class Base64Source:
    media_type: str
    data: str


@dataclass(frozen=True, slots=True)
class UrlSource:
    url: str


Source: TypeAlias = Base64Source | UrlSource
MediaType: TypeAlias = Literal["image", "audio", "video", "document"]


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    thinking: str


@dataclass(frozen=True, slots=True)
class Media:
    type: MediaType
    source: Source
    title: str | None = None


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call told inside a message, where others keep theirs; our own calls stand beside the content."""

    id: CallId
    name: str
    input: Json


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """A result told inside a message, as `tool_result`; our own results are messages."""

    call_id: CallId
    content: "tuple[Block, ...]"


@dataclass(frozen=True, slots=True)
class Summary:
    """What a stretch of the log comes to. The log keeps the stretch; models are shown this instead."""

    text: str
    of: MessageRange


@dataclass(frozen=True, slots=True)
class UnknownBlock:
    """A block that a newer version wrote: kept as it is, shown as it is; models are told its name."""

    raw: dict[str, Any]


Block: TypeAlias = Text | Thinking | Media | ToolUse | ToolOutcome | Summary | UnknownBlock


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: CallId
    name: str
    arguments: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One entry of the log. `run_id` and `step_index` say which run produced it, if one did.

    `ran_with` stands on a tool's result when a person had edited the call's arguments: the log keeps
    what the model asked for, and shows what was done. `cut_short` stands on what an assistant had said
    when its run ended in the middle of it.
    """

    id: MessageId
    role: Role
    content: tuple[Block, ...]
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: CallId | None = None
    visibility: Visibility = Visibility.ALL
    run_id: RunId | None = None
    step_index: int | None = None
    ran_with: JsonObject | None = None
    cut_short: TruncationReason | None = None

    @property
    def text(self) -> str:
        return text_of(self.content)

    def produced_by(self, run_id: RunId, step_index: int | None) -> "Message":
        """The message with its provenance filled in; what is already there is never overwritten."""
        return replace(
            self,
            run_id=self.run_id if self.run_id is not None else run_id,
            step_index=self.step_index if self.step_index is not None else step_index,
        )


@dataclass(frozen=True, slots=True)
class LoggedMessage:
    """A message at its place in the thread's log; that place never changes."""

    seq: int
    message: Message
    created_at: datetime | None = None
    rolled_back_by: RunId | None = None
    """The run in whose favour it doesn't count any more."""


def text_of(content: Sequence[Block]) -> str:
    """All text blocks joined without a separator; other blocks have no text."""
    return "".join(block.text for block in content if isinstance(block, Text))


def block_to_json(block: Block) -> dict[str, Any]:
    match block:
        case Text(text):
            return {"type": "text", "text": text}
        case Thinking(thinking):
            return {"type": "thinking", "thinking": thinking}
        case Media(type_, source, title):
            body: dict[str, Any] = {"type": type_, "source": _source_to_json(source)}
            return body if title is None else {**body, "title": title}
        case ToolUse(id_, name, input_):
            return {"type": "tool_use", "id": id_, "name": name, "input": input_}
        case ToolOutcome(call_id, content):
            inner = [block_to_json(each) for each in content]
            return {"type": "tool_result", "tool_use_id": call_id, "content": inner}
        case Summary(text, of):
            return {"type": "summary", "text": text, "from_seq": of.from_seq, "to_seq": of.to_seq}
        case UnknownBlock(raw):
            return raw
        case _:
            assert_never(block)


def block_from_json(raw: dict[str, Any]) -> Block:
    """The block that was written; one of an unknown kind or shape comes back untouched."""
    known = _known_block(raw)
    # A field that this version doesn't know must not get lost on the way through.
    return known if known is not None and block_to_json(known) == raw else UnknownBlock(raw)


def _known_block(raw: dict[str, Any]) -> Block | None:
    match raw:
        case {"type": "text", "text": str(text)}:
            return Text(text)
        case {"type": "thinking", "thinking": str(thinking)}:
            return Thinking(thinking)
        case {"type": "image" | "audio" | "video" | "document" as type_, "source": dict(source)}:
            parsed = _source_from_json(source)
            return None if parsed is None else Media(type_, parsed, raw.get("title"))
        case {"type": "tool_use", "id": str(id_), "name": str(name), "input": input_}:
            return ToolUse(CallId(id_), name, input_)
        case {"type": "tool_result", "tool_use_id": str(id_), "content": list(content)}:
            return ToolOutcome(CallId(id_), tuple(block_from_json(each) for each in content))
        case {
            "type": "summary",
            "text": str(text),
            "from_seq": int(from_seq),
            "to_seq": int(to_seq),
        }:
            of = MessageRange.of(from_seq, to_seq)
            return None if of is None else Summary(text, of)
        case _:
            return None


def _source_to_json(source: Source) -> dict[str, Any]:
    match source:
        case Base64Source(media_type, data):
            return {"type": "base64", "media_type": media_type, "data": data}
        case UrlSource(url):
            return {"type": "url", "url": url}
        case _:
            assert_never(source)


def _source_from_json(raw: dict[str, Any]) -> Source | None:
    match raw:
        case {"type": "base64", "media_type": str(media_type), "data": str(data)}:
            return Base64Source(media_type, data)
        case {"type": "url", "url": str(url)}:
            return UrlSource(url)
        case _:
            return None


def message_to_json(message: Message) -> dict[str, Any]:
    """The wire shape: what is absent is left out, the visibility of ordinary messages too."""
    body: dict[str, Any] = {
        "id": message.id,
        "role": message.role.value,
        "content": [block_to_json(block) for block in message.content],
    }
    if message.tool_calls:
        body["tool_calls"] = [call_to_json(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        body["tool_call_id"] = message.tool_call_id
    if message.visibility is not Visibility.ALL:
        body["visibility"] = message.visibility.value
    if message.run_id is not None:
        body["metadata"] = {"run_id": message.run_id, "step_index": message.step_index}
    if message.ran_with is not None:
        body["ran_with"] = message.ran_with
    if message.cut_short is not None:
        body["cut_short"] = message.cut_short.value
    return body


def call_to_json(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "name": call.name, "arguments": call.arguments}


def call_from_json(raw: dict[str, Any]) -> ToolCall:
    return ToolCall(CallId(raw["id"]), raw["name"], raw["arguments"])
