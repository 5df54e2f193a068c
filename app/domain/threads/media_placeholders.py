"""Placeholders for blocks that can't be sent to a model, so that it knows of them."""

from collections.abc import Mapping, Sequence
from typing import assert_never

from app.domain.json_values import compact_sorted
from app.domain.structs import replace
from app.domain.threads.messages import (
    Base64Source,
    Block,
    FileSource,
    Media,
    MediaType,
    Message,
    Summary,
    Text,
    Thinking,
    ToolOutcome,
    ToolUse,
    UnknownBlock,
    UrlSource,
)

_MAX_NAME_CHARACTERS = 200
_KINDS: Mapping[MediaType, str] = {
    "image": "an image",
    "audio": "an audio recording",
    "video": "a video",
    "document": "a document",
}


def placeholder(block: Block) -> str:
    """A text for any block; empty for thinking, which belongs only to its own model."""
    match block:
        case Text(text) | Summary(text):
            return text
        case Thinking():
            return ""
        case Media():
            return f"[{_media(block)} that can't be shown to you]"
        case ToolUse(_, name, input_):
            return f"[a call of the tool {name!r} with {compact_sorted(input_)}]"
        case ToolOutcome(_, content):
            return f"[the result of a tool call: {text_with_placeholders(content)}]"
        case UnknownBlock(raw):
            kind = str(raw.get("type", "?"))[:_MAX_NAME_CHARACTERS]
            return f"[a part of type {kind!r} that can't be shown to you]"
        case _:
            assert_never(block)


def without_media(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages with placeholders instead of media."""
    if not any(isinstance(block, Media) for message in messages for block in message.content):
        return messages
    return [
        replace(
            message,
            content=tuple(
                Text(placeholder(block)) if isinstance(block, Media) else block
                for block in message.content
            ),
        )
        for message in messages
    ]


def text_with_placeholders(content: Sequence[Block]) -> str:
    """The content as text only. Each placeholder has its own line."""
    if all(isinstance(block, Text) for block in content):
        return "".join(block.text for block in content if isinstance(block, Text))
    lines = [""]
    for block in content:
        text = placeholder(block)
        if isinstance(block, Text):
            lines[-1] += text
        elif text:
            lines += [text, ""]
    return "\n".join(line for line in lines if line)


def _media(media: Media) -> str:
    kind = _KINDS[media.type]
    title = f" called {media.title[:_MAX_NAME_CHARACTERS]!r}" if media.title else ""
    match media.source:
        case Base64Source(media_type):
            return f"{kind}{title} of type {media_type[:_MAX_NAME_CHARACTERS]}"
        case UrlSource(url):
            return f"{kind}{title} at {url[:_MAX_NAME_CHARACTERS]}"
        case FileSource(file_id):
            return f"{kind}{title} in the file {file_id}"
        case _:
            assert_never(media.source)
