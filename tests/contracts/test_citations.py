"""Citations of all providers are a field of the text; and parts of tools that a provider runs itself."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.domain.errors import ConfigurationError
from app.domain.threads.citations import Citation
from app.domain.threads.messages import Message, Text
from tests.contracts.test_provider_data import answer_of, second_request, stored_and_read
from tests.support.recorded_answers import (
    SIGNATURE,
    WIRES,
    anthropic,
    anthropic_block,
    anthropic_call,
    chat,
    data,
)
from tests.support.recorded_models import RecordedModels, recorded_models
from tests.support.transcripts import asking, collect

pytestmark = [
    pytest.mark.anyio,
    # Google's SDK warns when it is compiled for the first time.
    pytest.mark.filterwarnings("ignore:.*invalid escape sequence"),
]

URL, TITLE = "https://keys.test", "Keys"
FIRST, CITED = "I have looked. ", "It is in the attic."
CITATION = {
    "type": "web_search_result_location",
    "url": URL,
    "title": TITLE,
    "encrypted_index": SIGNATURE,
    "cited_text": "in the attic",
}


@pytest.fixture
async def recorded() -> AsyncIterator[RecordedModels]:
    async with recorded_models(WIRES.values()) as opened:
        yield opened


def anthropic_text(index: int, text: str, *citations: dict[str, Any]) -> list[dict[str, Any]]:
    deltas = [{"type": "citations_delta", "citation": each} for each in citations]
    start = {"type": "text", "text": "", **({"citations": []} if citations else {})}
    return anthropic_block(index, start, {"type": "text_delta", "text": text}, *deltas)


def annotated_chat() -> bytes:
    place = {"start_index": len(FIRST), "end_index": len(FIRST + CITED)}
    cited = {"url": URL, "title": TITLE, "content": "in the attic", **place}
    return chat(
        {"content": FIRST + CITED},
        {"annotations": [{"type": "url_citation", "url_citation": cited}, {"type": "file"}]},
        finish="stop",
    )


def grounded_google() -> bytes:
    grounding = {
        "groundingChunks": [{"web": {"uri": URL, "title": TITLE}}],
        "groundingSupports": [
            {
                "segment": {
                    "startIndex": len(FIRST),
                    "endIndex": len(FIRST + CITED),
                    "text": CITED,
                },
                "groundingChunkIndices": [0],
            }
        ],
    }
    content = {"role": "model", "parts": [{"text": FIRST + CITED}]}
    candidate = {"content": content, "finishReason": "STOP", "groundingMetadata": grounding}
    return data({"candidates": [candidate], "modelVersion": "gemini-3-pro"})


ANSWERS = {
    "anthropic": anthropic(
        anthropic_text(0, FIRST), anthropic_text(1, CITED, CITATION), stop="end_turn"
    ),
    "openrouter": annotated_chat(),
    "google": grounded_google(),
}


def citations_in(message: Message) -> tuple[Citation, ...]:
    [block] = message.content
    assert isinstance(block, Text)
    return block.citations


@pytest.mark.parametrize("name", ANSWERS)
async def test_citations_are_a_field_of_the_text(recorded: RecordedModels, name: str) -> None:
    answer = await answer_of(recorded.model(WIRES[name], ANSWERS[name]))
    [citation] = citations_in(answer)
    assert answer.text == FIRST + CITED
    assert (citation.url, citation.title) == (URL, TITLE)
    assert answer.text[citation.start : citation.end] == CITED
    assert citation.quote in {"in the attic", None}
    assert citations_in(stored_and_read(answer)) == (citation,)


async def test_citations_go_back_to_their_provider(recorded: RecordedModels) -> None:
    wire = WIRES["anthropic"]
    cited = anthropic(anthropic_text(0, CITED, CITATION), anthropic_call(1), stop="tool_use")
    answer = await answer_of(recorded.model(wire, cited))
    [sent, _] = wire.answer_in(await second_request(recorded, wire, stored_and_read(answer)))
    assert (sent["text"], sent["citations"]) == (CITED, [CITATION])
    other = json.dumps(await second_request(recorded, WIRES["google"], answer))
    assert CITED in other
    assert SIGNATURE not in other


SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {
            "type": "web_search_result",
            "url": URL,
            "title": TITLE,
            "encrypted_content": SIGNATURE,
            "page_age": None,
        }
    ],
}
SEARCHING = anthropic(
    anthropic_block(0, SEARCH, {"type": "input_json_delta", "partial_json": '{"query":"key"}'}),
    anthropic_block(1, FOUND),
    anthropic_text(2, CITED, CITATION),
    anthropic_call(3),
    stop="tool_use",
)


async def test_parts_of_a_tool_that_the_provider_runs_go_back_to_it(
    recorded: RecordedModels,
) -> None:
    wire = WIRES["anthropic"]
    model = recorded.model_with(wire, {"native_tools": ["web_search"]}, SEARCHING)
    answer = await answer_of(model)
    [request] = recorded.provider.requests(wire.name)
    assert [str(each["type"])[:10] for each in request["tools"] if "type" in each] == ["web_search"]
    assert [call.name for call in answer.tool_calls] == ["look"], "its own calls aren't ours"
    search, found, text, _ = wire.answer_in(
        await second_request(recorded, wire, stored_and_read(answer))
    )
    assert search == {**SEARCH, "input": {"query": "key"}}
    assert _without_none(found) == _without_none(FOUND)
    assert text["citations"] == [CITATION]
    other = json.dumps(await second_request(recorded, WIRES["deepseek"], answer))
    assert "srvtoolu_1" not in other


async def test_a_model_has_no_tools_of_its_provider_unless_its_options_name_them(
    recorded: RecordedModels,
) -> None:
    wire = WIRES["anthropic"]
    await collect(recorded.model(wire, wire.second), asking("Find it."))
    [request] = recorded.provider.requests(wire.name)
    assert not request.get("tools")


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("anthropic", "web_search", "must be a list of names"),
        ("anthropic", ["web_serch"], "names 'web_serch'; there are: code_execution, web_fetch"),
        ("google", "web_search", "must be a list of names"),
        ("google", ["web_serch"], "names 'web_serch'; there are: code_execution, web_fetch"),
        ("deepseek", ["web_search"], 'needs another provider, such as "openai-responses"'),
    ],
)
async def test_a_tool_that_the_provider_has_not_is_refused(
    recorded: RecordedModels, name: str, value: Any, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match="options.native_tools") as refused:
        recorded.model_with(WIRES[name], {"native_tools": value})
    assert problem in str(refused.value)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    return [_without_none(each) for each in value] if isinstance(value, list) else value
