"""Messages, as clients send and read them."""

import binascii
import re
from base64 import b64decode
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from app.api.schemas.common import RequestModel, ResponseModel, Str, Time
from app.clock import new_id
from app.domain.errors import Invalid, TooLarge
from app.domain.ids import MessageId
from app.domain.json_values import compact
from app.domain.threads.messages import (
    Base64Source,
    Block,
    LoggedMessage,
    Media,
    Message,
    Role,
    Text,
    UrlSource,
    message_to_json,
)

_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)


def _media_type(value: str) -> str:
    if not _MEDIA_TYPE.fullmatch(value):
        raise ValueError('must be a media type, such as "image/png"')
    return value


def _base64(value: str) -> str:
    """Checked here, because a message that no model can be sent would end every later run."""
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


class MediaPart(RequestModel):
    type: Literal["image", "audio", "video", "document"]
    source: Annotated[Base64 | Url, Field(discriminator="type")]
    title: Str | None = Field(None, max_length=500)


def _form(content: Any) -> str:
    return "parts" if isinstance(content, list) else "text"


Part = Annotated[TextPart | MediaPart, Field(discriminator="type")]
Parts = Annotated[list[Part], Field(min_length=1, max_length=100)]
Content = Annotated[
    Annotated[Str, Tag("text")] | Annotated[Parts, Tag("parts")], Discriminator(_form)
]


class NewMessage(RequestModel):
    """A message to start a run with. Content is plain text, or a list of parts."""

    role: Literal["user", "assistant", "system"]
    content: Content

    def to_domain(self) -> Message:
        content: tuple[Block, ...]
        if isinstance(self.content, str):
            content = (Text(self.content),)
        else:
            content = tuple(_block(part) for part in self.content)
        return Message(id=MessageId(new_id()), role=Role(self.role), content=content)


def bounded(messages: Sequence[NewMessage], most_bytes: int) -> tuple[Message, ...]:
    """New messages as they are kept, each with some content and not too much of it."""
    found = tuple(message.to_domain() for message in messages)
    for place, message in enumerate(found):
        if not message.content or all(
            getattr(block, "text", "x") == "" for block in message.content
        ):
            raise Invalid("message_empty", f"messages.{place} has no content.")
        if len(compact(message_to_json(message)).encode()) > most_bytes:
            raise TooLarge(
                "message_too_large", f"messages.{place} is larger than {most_bytes} bytes."
            )
    return found


def _block(part: TextPart | MediaPart) -> Block:
    if isinstance(part, TextPart):
        return Text(part.text)
    source = (
        UrlSource(part.source.url)
        if isinstance(part.source, Url)
        else Base64Source(part.source.media_type, part.source.data)
    )
    return Media(part.type, source, part.title)


class MessageOut(ResponseModel):
    """A message at its place in the thread's log; `seq` never changes."""

    seq: int
    id: str
    role: Literal["system", "user", "assistant", "tool"]
    content: list[dict[str, Any]]
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    visibility: str = "all"
    metadata: dict[str, Any] | None = None
    ran_with: dict[str, Any] | None = Field(
        None, description="On a tool's result: the arguments that a person had edited."
    )
    cut_short: Literal["cancelled", "failed", "stopped"] | None = Field(
        None, description="On an assistant's message: why it stops in the middle."
    )
    rolled_back_by: str | None = Field(
        None, description="The run in whose favour it doesn't count any more."
    )
    created_at: Time | None = None


def message_out(entry: LoggedMessage) -> MessageOut:
    return MessageOut(
        seq=entry.seq,
        rolled_back_by=entry.rolled_back_by,
        created_at=entry.created_at,
        **message_to_json(entry.message),
    )
