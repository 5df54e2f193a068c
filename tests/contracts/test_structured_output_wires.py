"""How each provider is asked for structured output and for a choice of tools."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.domain.structs import replace
from app.runtime.ports.models import ModelRequest
from app.runtime.ports.outputs import NativeOutput, NativeOutputModel
from tests.support.recorded_answers import WIRES, Wire
from tests.support.recorded_models import RecordedModels, recorded_models
from tests.support.transcripts import ADD, asking, collect

pytestmark = [
    pytest.mark.anyio,
    # Google's SDK warns when it is compiled for the first time.
    pytest.mark.filterwarnings("ignore:.*invalid escape sequence"),
]

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["count"],
    "additionalProperties": False,
    "properties": {"count": {"type": "integer"}},
}
ANTHROPIC, GOOGLE = WIRES["anthropic"], WIRES["google"]
RESPONSES, CHAT = WIRES["openai-responses"], WIRES["deepseek"]
FOUR = [pytest.param(w, id=w.name) for w in (ANTHROPIC, GOOGLE, RESPONSES, CHAT)]


@pytest.fixture
async def recorded() -> AsyncIterator[RecordedModels]:
    async with recorded_models(WIRES.values()) as opened:
        yield opened


async def sent(recorded: RecordedModels, wire: Wire, request: ModelRequest) -> Any:
    """The body of this request."""
    await collect(recorded.model(wire, wire.second), request)
    [body] = recorded.provider.requests(wire.name)
    return body


@pytest.mark.parametrize("wire", FOUR)
async def test_the_provider_gets_the_schema(recorded: RecordedModels, wire: Wire) -> None:
    request = replace(asking("Count."), output=NativeOutput("keys", SCHEMA, False))
    body = await sent(recorded, wire, request)
    match wire.name:
        case "anthropic":
            schema = body["output_config"]["format"]["schema"]
        case "google":
            config = body["generationConfig"]
            schema = config.get("responseJsonSchema") or config["responseSchema"]
        case "openai-responses":
            assert body["text"]["format"]["name"] == "keys"
            schema = body["text"]["format"]["schema"]
        case _:
            assert body["response_format"]["json_schema"]["name"] == "keys"
            schema = body["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["count"]["type"].lower() == "integer"
    assert schema["required"] == ["count"]


@pytest.mark.parametrize(
    ("wire", "choice", "where", "golden"),
    [
        (CHAT, "none", "tool_choice", "none"),
        (CHAT, "required", "tool_choice", "required"),
        (CHAT, "tool:add", "tool_choice", {"type": "function", "function": {"name": "add"}}),
        (RESPONSES, "none", "tool_choice", "none"),
        (RESPONSES, "required", "tool_choice", "required"),
        (ANTHROPIC, "none", "tool_choice", {"type": "none"}),
    ],
)
async def test_the_choice_of_tools_reaches_the_provider(
    recorded: RecordedModels, wire: Wire, choice: str, where: str, golden: Any
) -> None:
    request = replace(asking("Count.", tools=[ADD]), tool_choice=choice)
    body = await sent(recorded, wire, request)
    assert len(body["tools"]) == 1, "the tools stay in the request"
    assert body[where] == golden


@pytest.mark.parametrize("wire", FOUR)
async def test_a_plain_request_asks_for_neither(recorded: RecordedModels, wire: Wire) -> None:
    body = await sent(recorded, wire, asking("Count.", tools=[ADD]))
    assert "response_format" not in body
    assert "output_config" not in body
    assert body.get("tool_choice") in (None, "auto", {"type": "auto"})


@pytest.mark.parametrize(
    ("wire", "alone", "with_tools"),
    [(RESPONSES, True, True), (ANTHROPIC, True, True), (GOOGLE, True, False), (CHAT, False, False)],
)
async def test_native_output_is_chosen_where_it_is_supported(
    recorded: RecordedModels, wire: Wire, alone: bool, with_tools: bool
) -> None:
    model = recorded.model(wire, wire.second)
    assert isinstance(model, NativeOutputModel)
    assert model.has_native_output(with_tools=False) is alone
    assert model.has_native_output(with_tools=True) is with_tools
