"""What a model is told of a block that it can't be sent, so that it doesn't answer as if it weren't there."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from app.domain.json_values import compact
from app.domain.threads.messages import (
    Base64Source,
    Block,
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

_LONGEST_NAME = 200
_KINDS: Mapping[MediaType, str] = {
    "image": "an image",
    "audio": "an audio recording",
    "video": "a video",
    "document": "a document",
}


def placeholder(block: Block) -> str:
    """Words for any block; none for thoughts, which are nobody's business but their model's."""
    match block:
        case Text(text) | Summary(text):
            return text
        case Thinking():
            return ""
        case Media():
            return f"[{_media(block)} that can't be shown to you]"
        case ToolUse(_, name, input_):
            return f"[a call of the tool {name!r} with {compact(input_)}]"
        case ToolOutcome(_, content):
            return f"[the result of a tool call: {text_with_placeholders(content)}]"
        case UnknownBlock(raw):
            kind = str(raw.get("type", "?"))[:_LONGEST_NAME]
            return f"[a part of type {kind!r} that can't be shown to you]"
        case _:
            assert_never(block)


def without_media(messages: Sequence[Message]) -> Sequence[Message]:
    """The same messages, with media named instead of sent."""
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
    """A message's content where only text can stand. What isn't text has a line of its own."""
    if all(isinstance(block, Text) for block in content):
        return "".join(block.text for block in content if isinstance(block, Text))
    lines = [""]
    for block in content:
        words = placeholder(block)
        if isinstance(block, Text):
            lines[-1] += words
        elif words:
            lines += [words, ""]
    return "\n".join(line for line in lines if line)


def _media(media: Media) -> str:
    kind = _KINDS[media.type]
    title = f" called {media.title[:_LONGEST_NAME]!r}" if media.title else ""
    match media.source:
        case Base64Source(media_type):
            return f"{kind}{title} of type {media_type[:_LONGEST_NAME]}"
        case UrlSource(url):
            return f"{kind}{title} at {url[:_LONGEST_NAME]}"
        case _:
            assert_never(media.source)
