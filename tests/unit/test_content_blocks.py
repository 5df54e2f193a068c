"""Content blocks survive a round trip in any version, and each has a text for models."""

from typing import Any

import pytest
from pydantic_ai.models.test import TestModel

from app.domain.ids import CallId, MessageId
from app.domain.threads.media_placeholders import placeholder, text_with_placeholders
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
    block_from_json,
    block_to_json,
    text_of,
)
from app.llm.openai.request import request_body
from app.llm.pydantic_ai.messages import history_of
from app.runtime.ports.models import ModelRequest

BASE64 = {"type": "base64", "media_type": "image/png", "data": "aGk="}
URL = {"type": "url", "url": "https://x/y"}

KNOWN: list[tuple[dict[str, Any], Block]] = [
    ({"type": "text", "text": "hi"}, Text("hi")),
    ({"type": "thinking", "thinking": "hm"}, Thinking("hm")),
    ({"type": "image", "source": BASE64}, Media("image", Base64Source("image/png", "aGk="))),
    ({"type": "audio", "source": URL}, Media("audio", UrlSource("https://x/y"))),
    ({"type": "video", "source": URL}, Media("video", UrlSource("https://x/y"))),
    (
        {"type": "document", "source": URL, "title": "a.pdf"},
        Media("document", UrlSource("https://x/y"), "a.pdf"),
    ),
    (
        {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
        ToolUse(CallId("c1"), "add", {"a": 1}),
    ),
    (
        {
            "type": "tool_result",
            "tool_use_id": "c1",
            "content": [{"type": "text", "text": "3"}, {"type": "new"}],
        },
        ToolOutcome(CallId("c1"), (Text("3"), UnknownBlock({"type": "new"}))),
    ),
    (
        {"type": "summary", "text": "all", "from_seq": 1, "to_seq": 40},
        Summary("all", MessageRange(1, 40)),
    ),
]


@pytest.mark.parametrize("raw, block", KNOWN)
def test_a_block_survives_a_round_trip(raw: dict[str, Any], block: Block) -> None:
    assert block_from_json(raw) == block
    assert block_to_json(block) == raw


@pytest.mark.parametrize(
    "raw",
    [
        {"type": "hologram", "beams": 7},
        {"type": "text", "text": 5},
        {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}},
        {"type": "image", "source": {"type": "blob", "id": "b1"}},
        {"type": "image", "source": {**URL, "detail": "high"}},
        {"type": "summary", "text": "all", "from_seq": 40, "to_seq": 1},
        {"type": "tool_result", "tool_use_id": "c1", "content": "plain"},
        {"no": "type"},
    ],
)
def test_a_block_of_a_newer_version_survives(raw: dict[str, Any]) -> None:
    assert block_from_json(raw) == UnknownBlock(raw)
    assert block_to_json(block_from_json(raw)) == raw


def test_only_text_blocks_have_text() -> None:
    assert text_of([block for _, block in KNOWN]) == "hi"


@pytest.mark.parametrize(
    "block, words",
    [
        (Text("hi"), "hi"),
        (Thinking("secret"), ""),
        (
            Media("image", Base64Source("image/png", "aGk=")),
            "[an image of type image/png that can't be shown to you]",
        ),
        (
            Media("document", UrlSource("https://x/y"), "a.pdf"),
            "[a document called 'a.pdf' at https://x/y that can't be shown to you]",
        ),
        (ToolUse(CallId("c"), "add", {"a": 1}), "[a call of the tool 'add' with {\"a\":1}]"),
        (ToolOutcome(CallId("c"), (Text("3"),)), "[the result of a tool call: 3]"),
        (UnknownBlock({}), "[a part of type '?' that can't be shown to you]"),
    ],
)
def test_every_block_has_a_placeholder_text(block: Block, words: str) -> None:
    assert placeholder(block) == words


def test_text_stays_together_and_other_blocks_get_their_own_lines() -> None:
    image = Media("image", UrlSource("https://x/y"))
    content: list[Block] = [Text("a"), Text("b"), Thinking("no"), image, Text("c")]
    assert (
        text_with_placeholders(content)
        == "ab\n[an image at https://x/y that can't be shown to you]\nc"
    )


@pytest.mark.parametrize("role", [Role.SYSTEM, Role.ASSISTANT])
def test_no_adapter_drops_media_from_text_only_fields(role: Role) -> None:
    message = Message(
        id=MessageId("m"),
        role=role,
        content=(Text("look"), Media("image", UrlSource("https://x/y"))),
        tool_call_id=CallId("c"),
    )
    note = "[an image at https://x/y that can't be shown to you]"
    assert (
        note in request_body(ModelRequest(system_prompt="", messages=[message]), "m", {}).decode()
    )
    assert note in str(history_of([message], TestModel()))


def test_no_adapter_drops_unknown_parts() -> None:
    message = Message(
        id=MessageId("m"), role=Role.USER, content=(UnknownBlock({"type": "hologram"}),)
    )
    note = "[a part of type 'hologram' that can't be shown to you]"
    assert (
        note in request_body(ModelRequest(system_prompt="", messages=[message]), "m", {}).decode()
    )
    assert note in str(history_of([message], TestModel()))
