"""Images and documents of tools, as each provider gets them: in the result of the call, or behind it."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.domain.ids import CallId, MessageId
from app.domain.threads.messages import (
    Base64Source,
    Media,
    MediaType,
    Message,
    Role,
    Text,
    ToolCall,
)
from tests.support.recorded_answers import WIRES, Wire
from tests.support.recorded_models import RecordedModels, recorded_models
from tests.support.transcripts import asking, collect

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:.*invalid escape sequence"),
]

DATA = base64.b64encode(b"\x89PNG\r\n\x1a\n and more").decode()
TYPES: dict[MediaType, str] = {
    "image": "image/png",
    "document": "application/pdf",
    "audio": "audio/wav",
}


@pytest.fixture
async def recorded() -> AsyncIterator[RecordedModels]:
    async with recorded_models(WIRES.values()) as opened:
        yield opened


def conversation(type_: MediaType) -> list[Message]:
    calls = tuple(ToolCall(CallId(f"c{n}"), "look", {"place": str(n)}) for n in (1, 2))
    media = Media(type_, Base64Source(TYPES[type_], DATA), "chart")
    return [
        Message(id=MessageId("m1"), role=Role.ASSISTANT, content=(), tool_calls=calls),
        Message(
            id=MessageId("m2"),
            role=Role.TOOL,
            content=(Text("drawn"), media),
            tool_call_id=CallId("c1"),
        ),
        Message(
            id=MessageId("m3"),
            role=Role.TOOL,
            content=(Text("nothing"),),
            tool_call_id=CallId("c2"),
        ),
    ]


async def request_with(recorded: RecordedModels, wire: Wire, type_: MediaType) -> Any:
    model = recorded.model(wire, wire.second)
    await collect(model, asking("Find it.", *conversation(type_)))
    [request] = recorded.provider.requests(wire.name)
    return request


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("name", WIRES)
async def test_a_file_of_a_result_is_sent_once_or_named(
    recorded: RecordedModels, name: str, type_: MediaType
) -> None:
    body = await request_with(recorded, WIRES[name], type_)
    sent = [text for text in _texts(body) if DATA in text]
    named = [text for text in _texts(body) if "that can't be shown to you" in text]
    assert len(sent) + len(named) == 1
    if type_ == "image":
        assert sent, "every provider of the table reads images"
    assert any(text == "nothing" for text in _texts(body)), "the other result is unchanged"


async def test_anthropic_gets_an_image_within_the_result(recorded: RecordedModels) -> None:
    body = await request_with(recorded, WIRES["anthropic"], "image")
    first, second = body["messages"][2]["content"]
    text, image = first["content"]
    assert (first["type"], first["tool_use_id"]) == ("tool_result", "c1")
    assert (text["text"], image["type"]) == ("drawn", "image")
    assert image["source"]["data"] == DATA
    assert second["tool_use_id"] == "c2"


async def test_compatible_servers_get_an_image_behind_all_results(recorded: RecordedModels) -> None:
    body = await request_with(recorded, WIRES["deepseek"], "image")
    assert body["messages"][3:] == [
        {"role": "tool", "tool_call_id": "c1", "content": "drawn"},
        {"role": "tool", "tool_call_id": "c2", "content": "nothing"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "[the image 'chart' of the result of the call c1]"},
                {
                    "type": "image_url",
                    "image_url": {"url": f"data:image/png;base64,{DATA}"},
                },
            ],
        },
    ]


def _texts(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for each in value.values() for text in _texts(each)]
        case list():
            return [text for each in value for text in _texts(each)]
        case _:
            return []
