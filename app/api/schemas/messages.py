"""Messages, as clients send and read them."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from app.api.schemas.common import Answer, Request, Str, Time
from app.clock import new_id
from app.domain.ids import MessageId
from app.domain.messages import (
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


class TextPart(Request):
    type: Literal["text"]
    text: Str


class Base64(Request):
    type: Literal["base64"]
    media_type: Str = Field(max_length=200)
    data: Str


class Url(Request):
    type: Literal["url"]
    url: Str = Field(max_length=4000)


class MediaPart(Request):
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


class NewMessage(Request):
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


def _block(part: TextPart | MediaPart) -> Block:
    if isinstance(part, TextPart):
        return Text(part.text)
    source = (
        UrlSource(part.source.url)
        if isinstance(part.source, Url)
        else Base64Source(part.source.media_type, part.source.data)
    )
    return Media(part.type, source, part.title)


class MessageOut(Answer):
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
    cut_short: Literal["cancelled", "failed"] | None = Field(
        None, description="On an assistant's message: why it stops in the middle."
    )
    created_at: Time | None = None


def message_out(entry: LoggedMessage) -> MessageOut:
    return MessageOut(seq=entry.seq, created_at=entry.created_at, **message_to_json(entry.message))
