"""Messages: requests, and how the log is shown."""

import binascii
import re
from base64 import b64decode
from collections.abc import Sequence
from typing import Annotated, Any, Literal, assert_never

from pydantic import AfterValidator, Discriminator, Field, Tag
from typing_extensions import TypeAliasType

from app.api.schemas.common import RequestModel, ResponseModel, Str, Time, Uuid, is_absent
from app.clock import new_id
from app.domain.errors import Invalid, TooLarge
from app.domain.ids import FileId, MessageId
from app.domain.json_values import compact
from app.domain.threads.messages import (
    Base64Source,
    Block,
    FileSource,
    LoggedMessage,
    Media,
    Message,
    Role,
    Source,
    Text,
    UrlSource,
    message_to_json,
)
from app.domain.threads.provider_data import ProviderData, part_to_json

_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)


def _media_type(value: str) -> str:
    if not _MEDIA_TYPE.fullmatch(value):
        raise ValueError('must be a media type, such as "image/png"')
    return value


def _base64(value: str) -> str:
    """Checked here, because an invalid message would fail every later run of the thread."""
    try:
        is_empty = not b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("must be base64, with padding and without line breaks") from error
    if is_empty:
        raise ValueError("must not be empty")
    return value


def _web_address(value: str) -> str:
    if not re.match(r"https?://[^/?#\s]+", value, re.IGNORECASE) or not value.isprintable():
        raise ValueError("must be an http or https address")
    return value


class TextPart(RequestModel):
    type: Literal["text"]
    text: Str


class Base64(RequestModel):
    type: Literal["base64"]
    media_type: Annotated[Str, Field(max_length=200), AfterValidator(_media_type)]
    data: Annotated[Str, AfterValidator(_base64)]


class Url(RequestModel):
    type: Literal["url"]
    url: Annotated[Str, Field(max_length=4000), AfterValidator(_web_address)]


class File(RequestModel):
    """An uploaded file."""

    type: Literal["file"]
    file_id: Uuid


class MediaPart(RequestModel):
    type: Literal["image", "audio", "video", "document"]
    source: Annotated[Base64 | Url | File, Field(discriminator="type")]
    title: Str | None = Field(None, max_length=500)


def _form(content: Any) -> str:
    return "parts" if isinstance(content, list) else "text"


ContentPart = TypeAliasType(
    "ContentPart", Annotated[TextPart | MediaPart, Field(discriminator="type")]
)
Parts = Annotated[list[ContentPart], Field(min_length=1, max_length=100, fail_fast=True)]
Content = Annotated[
    Annotated[Str, Tag("text")] | Annotated[Parts, Tag("parts")], Discriminator(_form)
]


class NewMessage(RequestModel):
    """A new message. Its content is text or a list of parts."""

    id: Uuid | None = Field(
        None,
        description="Your id for the message, unique in the thread. A message that the thread has already isn't "
        "added again; with other content it is 409 `message_id_conflict`.",
    )
    role: Literal["user", "assistant", "system"]
    content: Content

    def to_domain(self) -> Message:
        content: tuple[Block, ...]
        if isinstance(self.content, str):
            content = (Text(self.content),)
        else:
            content = tuple(_block(part) for part in self.content)
        return Message(id=MessageId(self.id or new_id()), role=Role(self.role), content=content)


def _different_ids(messages: list[NewMessage]) -> list[NewMessage]:
    ids = [message.id for message in messages if message.id is not None]
    if len(set(ids)) < len(ids):
        raise ValueError("two messages have the same id")
    return messages


DifferentIds = AfterValidator(_different_ids)


def chosen_ids(messages: Sequence[NewMessage]) -> frozenset[MessageId]:
    """The ids that the client has chosen."""
    return frozenset(MessageId(message.id) for message in messages if message.id is not None)


def bounded(messages: Sequence[NewMessage], max_bytes: int) -> tuple[Message, ...]:
    """The messages as domain objects; raises if one is empty or too large."""
    found = tuple(message.to_domain() for message in messages)
    for place, message in enumerate(found):
        if not message.content or all(
            getattr(block, "text", "x") == "" for block in message.content
        ):
            raise Invalid(
                "message_empty", f"messages.{place} has no content. Give it some text or media."
            )
        if len(compact(message_to_json(message)).encode()) > max_bytes:
            raise TooLarge(
                "message_too_large",
                f"messages.{place} is larger than {max_bytes} bytes. Send less, or a URL.",
            )
    return found


def _block(part: TextPart | MediaPart) -> Block:
    if isinstance(part, TextPart):
        return Text(part.text)
    return Media(part.type, _source(part.source), part.title)


def _source(source: Base64 | Url | File) -> Source:
    match source:
        case Base64():
            return Base64Source(source.media_type, source.data)
        case Url():
            return UrlSource(source.url)
        case File():
            return FileSource(FileId(source.file_id))
        case _:
            assert_never(source)


class ToolResultOut(ResponseModel):
    """The result of a tool call, the same in events and in the log."""

    status: Literal["waiting", "done"] = Field(
        description="`waiting` while the call waits for its ticket."
    )
    outcome: Literal["succeeded", "failed", "cancelled"] | None = Field(
        None, exclude_if=is_absent, description="How the call ended; absent while it waits."
    )
    text: str = Field(description="What the model reads.")
    data: Any = Field(
        None, exclude_if=is_absent, description="What the tool returned, unless it is the text."
    )
    metadata: dict[str, Any] | None = Field(
        None,
        exclude_if=is_absent,
        description="What the tool says to programs. Models don't read it.",
    )


def _is_absent(value: object) -> bool:
    return value is None


class ProviderDataOut(ResponseModel):
    """What a provider wants back with its answer, such as signatures and encrypted reasoning."""

    provider: str | None = Field(description="The provider; null for OpenAI-compatible servers.")
    model: str
    parts: list[dict[str, Any]] = Field(
        description="In the order of the answer, each with its `type`, its place in the message's text, "
        "and the provider's opaque `data`."
    )


class MessageOut(ResponseModel):
    """A message of the thread's log. Its `seq` never changes."""

    seq: int
    id: str
    role: Literal["system", "user", "assistant", "tool"]
    content: list[dict[str, Any]]
    tool_calls: list[dict[str, Any]] | None = Field(
        None,
        description="The calls of the model, each with `tool_call_id`, `name` and `arguments`.",
    )
    tool_call_id: str | None = None
    visibility: str = "all"
    metadata: dict[str, Any] | None = None
    edited_arguments: dict[str, Any] | None = Field(
        None, description="On a tool's result: the arguments, if a person edited them."
    )
    result: ToolResultOut | None = Field(
        None, description="On a tool's message: the call's result as its event shows it."
    )
    cut_short: Literal["cancelled", "failed", "stopped"] | None = Field(
        None, description="On an assistant's message: why it is incomplete."
    )
    provider_data: ProviderDataOut | None = Field(
        None,
        exclude_if=_is_absent,
        description="On an answer: what its provider wants back. Only with `include=provider_data`.",
    )
    rolled_back_by_run_id: str | None = Field(
        None, description="The run that rolled this message back. Later runs ignore it."
    )
    created_at: Time | None = None


def message_out(entry: LoggedMessage, *, with_provider_data: bool = False) -> MessageOut:
    data = entry.message.provider_data if with_provider_data else None
    return MessageOut(
        seq=entry.seq,
        provider_data=None if data is None else _provider_data_out(data),
        rolled_back_by_run_id=entry.rolled_back_by,
        created_at=entry.created_at,
        **message_to_json(entry.message),
    )


def _provider_data_out(data: ProviderData) -> ProviderDataOut:
    return ProviderDataOut(
        provider=data.issuer.get("provider"),
        model=data.issuer["model"],
        parts=[part_to_json(part) for part in data.parts],
    )
