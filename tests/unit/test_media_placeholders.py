"""Placeholders: the text that a model reads in place of media that it can't receive."""

import pytest

from app.domain.ids import CallId, MessageId
from app.domain.threads.media_placeholders import placeholder, text_with_placeholders, without_media
from app.domain.threads.messages import (
    Base64Source,
    Block,
    Media,
    Message,
    MessageRange,
    Role,
    Summary,
    Text,
    Thinking,
    ToolOutcome,
    ToolUse,
    UnknownBlock,
    UrlSource,
)

URL = "https://files.test/cat.png"
IMAGE = Media("image", UrlSource(URL), None)
IN_WORDS = f"[an image at {URL} that can't be shown to you]"


@pytest.mark.parametrize(
    "block, words",
    [
        (Text("hello"), "hello"),
        (Summary("short", MessageRange(1, 2)), "short"),
        (Thinking("hm"), ""),
        (ToolUse(CallId("c"), "pay", {"a": 1}), "[a call of the tool 'pay' with {\"a\":1}]"),
        (ToolOutcome(CallId("c"), (Text("ok"),)), "[the result of a tool call: ok]"),
        (
            Media("document", Base64Source("application/pdf", "AA=="), "Bill"),
            "[a document called 'Bill' of type application/pdf that can't be shown to you]",
        ),
        (IMAGE, IN_WORDS),
        (
            UnknownBlock({"type": "hologram"}),
            "[a part of type 'hologram' that can't be shown to you]",
        ),
        (UnknownBlock({}), "[a part of type '?' that can't be shown to you]"),
    ],
)
def test_a_block_is_named(block: Block, words: str) -> None:
    assert placeholder(block) == words


def test_adjacent_text_is_joined_and_other_blocks_get_their_own_lines() -> None:
    assert text_with_placeholders([]) == ""
    assert text_with_placeholders([Text("a"), Text("b")]) == "ab"
    assert (
        text_with_placeholders([Text("a"), Text("b"), IMAGE, Text("c"), Thinking("x"), Text("d")])
        == f"ab\n{IN_WORDS}\ncd"
    )
    assert text_with_placeholders([IMAGE, IMAGE]) == f"{IN_WORDS}\n{IN_WORDS}"


def test_long_names_are_cut() -> None:
    shown = placeholder(UnknownBlock({"type": "x" * 1000}))
    assert "x" * 200 in shown
    assert "x" * 201 not in shown


def saying(*content: Block) -> Message:
    return Message(id=MessageId("m"), role=Role.USER, content=content)


def test_messages_without_media_are_unchanged() -> None:
    messages = [saying(Text("a")), saying()]
    assert without_media(messages) is messages


def test_media_is_replaced_by_its_name_and_text_stays() -> None:
    messages = [saying(Text("a"), IMAGE), saying(Text("b"))]
    assert without_media(messages) == [saying(Text("a"), Text(IN_WORDS)), saying(Text("b"))]
