"""Messages: the entries of a thread's log, and their content blocks."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypeAlias, assert_never

from msgspec import Struct

from app.domain.ids import CallId, FileId, MessageId, RunId
from app.domain.json_values import Json, JsonObject
from app.domain.structs import replace
from app.domain.threads.citations import Citation, citation_from_json, citation_to_json
from app.domain.threads.provider_data import ProviderData


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
    """Why an assistant message is incomplete."""

    CANCELLED = "cancelled"
    FAILED = "failed"
    STOPPED = "stopped"


class MessageRange(Struct, frozen=True):
    """A range of the log, both ends inclusive, counted from 1."""

    from_seq: int
    to_seq: int

    @staticmethod
    def of(from_seq: int, to_seq: int) -> "MessageRange | None":
        """The range, or None if the bounds are invalid."""
        return MessageRange(from_seq, to_seq) if 1 <= from_seq <= to_seq else None

    def hull(self, seq: int) -> "MessageRange":
        return MessageRange(min(self.from_seq, seq), max(self.to_seq, seq))


class Base64Source(Struct, frozen=True):
    media_type: str
    data: str


class UrlSource(Struct, frozen=True):
    url: str


class WrittenFile(Struct, frozen=True, kw_only=True):
    """A file whose bytes are written. The transaction that accepts its message creates the file."""

    blob_id: str
    name: str | None
    media_type: str
    size: int
    sha256: str
    created_by: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file of the tenant. The runtime loads it just before a request to a model."""

    file_id: FileId
    written: WrittenFile | None = field(default=None, compare=False, repr=False)
    """Set on a new message only, if its bytes came with it."""


Source: TypeAlias = Base64Source | UrlSource | FileSource
MediaType: TypeAlias = Literal["image", "audio", "video", "document"]


class Text(Struct, frozen=True):
    """`citations` are the sources that the model has named for pieces of its text."""

    text: str
    citations: tuple[Citation, ...] = ()


class Thinking(Struct, frozen=True):
    thinking: str


class Media(Struct, frozen=True):
    type: MediaType
    source: Source
    title: str | None = None


class ToolUse(Struct, frozen=True):
    """A call as a content block, as clients may send it. Calls of runs are in `Message.tool_calls`."""

    id: CallId
    name: str
    input: Json


class ToolOutcome(Struct, frozen=True):
    """A `tool_result` block, as clients may send it. Results of runs are messages."""

    call_id: CallId
    content: "tuple[Block, ...]"


class Summary(Struct, frozen=True):
    """A summary of a range of the log. The log keeps the range; models read the summary instead."""

    text: str
    of: MessageRange


class UnknownBlock(Struct, frozen=True):
    """A block of an unknown type, kept and shown unchanged; models get a placeholder with its type."""

    raw: dict[str, Any]


Block: TypeAlias = Text | Thinking | Media | ToolUse | ToolOutcome | Summary | UnknownBlock


class ToolCall(Struct, frozen=True):
    id: CallId
    name: str
    arguments: Json


class Message(Struct, frozen=True, kw_only=True):
    """One entry of the log. `run_id` and `step_index` name the run and step that wrote it, if one did.

    `edited_arguments` are the arguments that a person edited, on the call's result; the call keeps the model's own
    arguments. `result` has a call's status as it is stored, its `data` and `metadata`; its text is the content.
    `cut_short` marks an assistant message that was incomplete when its run ended.
    """

    id: MessageId
    role: Role
    content: tuple[Block, ...]
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: CallId | None = None
    visibility: Visibility = Visibility.ALL
    run_id: RunId | None = None
    step_index: int | None = None
    edited_arguments: JsonObject | None = None
    result: JsonObject | None = None
    cut_short: TruncationReason | None = None
    provider_data: ProviderData | None = None
    """On an answer: what its provider wants back. Events and lists leave it out."""

    @property
    def text(self) -> str:
        return text_of(self.content)

    def produced_by(self, run_id: RunId, step_index: int | None) -> "Message":
        """The message with its run and step set, unless it has them already."""
        if self.run_id is not None and (self.step_index is not None or step_index is None):
            return self
        return replace(
            self,
            run_id=self.run_id if self.run_id is not None else run_id,
            step_index=self.step_index if self.step_index is not None else step_index,
        )


class LoggedMessage(Struct, frozen=True):
    """A message at its position in the thread's log, which never changes."""

    seq: int
    message: Message
    created_at: datetime | None = None
    rolled_back_by: RunId | None = None
    """The run that replaced this message's run by a rollback."""


class MessageFilter(Struct, frozen=True, kw_only=True):
    """The filter of a message list. Both seqs are included."""

    from_seq: int | None = None
    to_seq: int | None = None
    run_id: RunId | None = None
    """Only messages that this run has written."""
    visibility: Visibility | None = None
    with_rolled_back: bool = False


def text_of(content: Sequence[Block]) -> str:
    """The text blocks, joined without a separator; other blocks are skipped."""
    return "".join(block.text for block in content if isinstance(block, Text))


def block_to_json(block: Block) -> dict[str, Any]:
    match block:
        case Text(text, ()):
            return {"type": "text", "text": text}
        case Text(text, citations):
            cited = [citation_to_json(each) for each in citations]
            return {"type": "text", "text": text, "citations": cited}
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
    """The parsed block; one of an unknown type or shape stays unchanged as `UnknownBlock`."""
    try:
        known = _known_block(raw)
    except (KeyError, TypeError, AttributeError):  # citations of an unknown shape
        return UnknownBlock(raw)
    # A block with unknown fields stays as it is, so that they aren't lost.
    return known if known is not None and block_to_json(known) == raw else UnknownBlock(raw)


def _known_block(raw: dict[str, Any]) -> Block | None:
    match raw:
        case {"type": "text", "text": str(text)}:
            return Text(text, tuple(map(citation_from_json, raw.get("citations", ()))))
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
        case FileSource(file_id):
            return {"type": "file", "file_id": file_id}
        case _:
            assert_never(source)


def _source_from_json(raw: dict[str, Any]) -> Source | None:
    match raw:
        case {"type": "base64", "media_type": str(media_type), "data": str(data)}:
            return Base64Source(media_type, data)
        case {"type": "url", "url": str(url)}:
            return UrlSource(url)
        case {"type": "file", "file_id": str(file_id)}:
            return FileSource(FileId(file_id))
        case _:
            return None


_SUSPENDED = "suspended"


def message_to_json(message: Message) -> dict[str, Any]:
    """The wire format, without absent fields and without the default visibility."""
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
    if message.edited_arguments is not None:
        body["edited_arguments"] = message.edited_arguments
    if message.result is not None:
        media = [block for block in message.content if isinstance(block, Media)]
        body["result"] = call_result_to_json(message.text, message.result, media)
    if message.cut_short is not None:
        body["cut_short"] = message.cut_short.value
    return body


def call_result_to_json(
    text: str, stored: JsonObject, media: Sequence[Media] = ()
) -> dict[str, Any]:
    """A call's result as events and the log show it: `waiting`, or `done` with its outcome."""
    rest = {name: value for name, value in stored.items() if name != "status"}
    if media:
        rest["media"] = [block_to_json(each) for each in media]
    status = stored["status"]
    if status == _SUSPENDED:
        return {"text": text, "status": "waiting", **rest}
    return {"text": text, "status": "done", "outcome": status, **rest}


def logged_message_to_json(entry: LoggedMessage) -> dict[str, Any]:
    """The wire format of a message with its position, as events show it."""
    return {"seq": entry.seq, **message_to_json(entry.message)}


def call_to_json(call: ToolCall) -> dict[str, Any]:
    return {"tool_call_id": call.id, "name": call.name, "arguments": call.arguments}
