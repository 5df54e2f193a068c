"""Our requests to Google are those that the SDK's adapter sends, and our traits of models are the SDK's."""

import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, get_args

import pytest
from pydantic_ai.models import KnownModelName
from pydantic_ai.models.google import GoogleModel as SdkModel
from pydantic_ai.providers.google import GoogleProvider

from app.domain.errors import InferenceFailed
from app.domain.inference.options import EffortName, InferenceOptions, ThinkingBudget
from app.domain.structs import replace
from app.domain.threads.messages import Media, UrlSource
from app.llm.google.model_traits import LEVELS, GoogleTraits, traits_of
from app.runtime.ports.outputs import NativeOutput
from tests.contracts.test_anthropic_requests import CONVERSATIONS, SCHEMAS, TOOLS, media, said
from tests.contracts.test_media_of_results import TYPES, conversation
from tests.support.compared_adapters import Adapters, ComparedAdapters, compared_adapters
from tests.support.transcripts import asking

pytestmark = [
    pytest.mark.anyio,
    # Google's SDK warns when it is compiled for the first time.
    pytest.mark.filterwarnings("ignore:.*invalid escape sequence"),
    pytest.mark.filterwarnings("ignore:.google_cached_content. is set"),
]

OLD, MIDDLE, NEW = "gemini-2.0-flash", "gemini-2.5-flash", "gemini-3.5-flash"
NAMES = (
    *(OLD, MIDDLE, NEW, "gemini-2.5-pro", "gemini-3-pro-preview", "gemini-3.1-pro-preview"),
    *("gemini-3.7-flash", "gemini-4-argon", "gemini-2.5-flash-image", "gemini-3.1-flash-image"),
    "gemma-3-27b-it",
)


@pytest.fixture(scope="module")
async def both() -> AsyncIterator[ComparedAdapters]:
    async with compared_adapters("google", NEW, named_as_ours) as opened:
        yield opened


@pytest.fixture(scope="module")
def adapters(both: ComparedAdapters) -> Adapters:
    return both.with_options({})


def named_as_ours(value: Any) -> Any:
    """The API takes names in both spellings. What schemas and arguments have is not ours to spell."""
    if isinstance(value, dict):
        return {
            (name := re.sub("_([a-z])", lambda found: found[1].upper(), key)): each
            if name in ("parametersJsonSchema", "responseJsonSchema", "args", "response", "labels")
            else named_as_ours(each)
            for key, each in value.items()
        }
    return [named_as_ours(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", [MIDDLE, NEW])
@pytest.mark.parametrize("which", [name for name in CONVERSATIONS if name != "parts"])
async def test_a_conversation_has_the_same_contents(
    adapters: Adapters, which: str, name: str
) -> None:
    ours, oracle = await adapters.sent(asking(*CONVERSATIONS[which], tools=TOOLS), name)
    assert ours == oracle


async def test_parts_of_a_message_are_the_same(adapters: Adapters) -> None:
    """Except for addresses: the SDK loads them itself."""
    [message] = CONVERSATIONS["parts"]
    blocks = [
        block
        for block in message.content
        if not (isinstance(block, Media) and isinstance(block.source, UrlSource))
    ]
    ours, oracle = await adapters.sent(asking(said(*blocks, media("audio", "audio/wav"))))
    assert ours == oracle


@pytest.mark.parametrize(
    "url, file",
    [
        (
            "https://x.test/y.png?a=1",
            {"fileUri": "https://x.test/y.png?a=1", "mimeType": "image/png"},
        ),
        ("https://x.test/files/1", {"fileUri": "https://x.test/files/1"}),
        (
            "https://www.youtube.com/watch?v=1",
            {"fileUri": "https://www.youtube.com/watch?v=1", "mimeType": "video/mp4"},
        ),
        ("https://[", {"fileUri": "https://["}),
    ],
)
async def test_google_loads_addresses_itself(
    adapters: Adapters, url: str, file: dict[str, str]
) -> None:
    body = await adapters.ours(asking(said(Media("image", UrlSource(url)))))
    assert body["contents"] == [{"role": "user", "parts": [{"fileData": file}]}]


@pytest.mark.parametrize("type_", ["image", "document"])
async def test_media_stand_in_results_where_models_read_them(
    adapters: Adapters, type_: Any
) -> None:
    ours, oracle = await adapters.sent(asking("Find it.", *conversation(type_)))
    assert ours == oracle
    assert TYPES[type_] in json.dumps(ours)


@pytest.mark.parametrize("name, type_", [(MIDDLE, "image"), (NEW, "audio")])
async def test_other_media_of_results_follow_all_results(
    adapters: Adapters, name: str, type_: Any
) -> None:
    body = await adapters.ours(asking("Find it.", *conversation(type_)), name)
    _, _, results, behind = body["contents"]
    assert [part["functionResponse"]["id"] for part in results["parts"]] == ["c1", "c2"]
    text, file = behind["parts"]
    assert text == {"text": f"[the {type_} 'chart' of the result of the call c1]"}
    assert file["inlineData"]["mimeType"] == TYPES[type_]


OPTIONS: list[InferenceOptions] = [
    InferenceOptions(),
    InferenceOptions(temperature=0.5, top_p=0.75, max_tokens=321),
    *(InferenceOptions(reasoning_effort=effort) for effort in get_args(EffortName)),
    InferenceOptions(reasoning_effort=ThinkingBudget(4000)),
]


@pytest.mark.parametrize("name", NAMES)
async def test_each_model_gets_the_same_parameters(adapters: Adapters, name: str) -> None:
    tools = () if "image" in name else TOOLS
    for options in OPTIONS:
        ours, oracle = await adapters.sent(asking("hi", tools=tools, options=options), name)
        assert ours == oracle


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.5, "top_p": 0.5, "top_k": 3, "stop_sequences": ["x"], "max_tokens": 9},
        {"presence_penalty": 0.1, "frequency_penalty": 0.2, "seed": 4},
        {"google_thinking_config": {"include_thoughts": True, "thinking_budget": 2000}},
        {"thinking": "high"},
        {"thinking": True},
        {"thinking": False},
        {"google_safety_settings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}]},
        {"google_labels": {"cost_center": "b"}, "google_video_resolution": "MEDIA_RESOLUTION_LOW"},
        {"google_cached_content": "cachedContents/x"},
        {"google_logprobs": True, "google_top_logprobs": 2},
        *({"service_tier": tier} for tier in ("auto", "default", "flex", "priority")),
        {"parallel_tool_calls": False, "timeout": 3},
    ],
    ids=json.dumps,
)
async def test_the_options_of_a_model_mean_the_same(
    both: ComparedAdapters, options: Mapping[str, Any]
) -> None:
    adapters = both.with_options(options)
    for name in (MIDDLE, NEW):
        ours, oracle = await adapters.sent(asking("hi", tools=TOOLS), name)
        assert ours == oracle


async def test_parameters_of_the_api_go_into_the_request_as_they_are(
    both: ComparedAdapters,
) -> None:
    options = {
        "generationConfig": {"candidateCount": 1, "topK": 3},
        "thinkingConfig": {"thinkingLevel": "LOW"},
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
        "tools": [{"googleMaps": {}}],
        "toolConfig": {"retrievalConfig": {"languageCode": "de"}},
        "extra_body": {"store": False},
    }
    body = await both.with_options(options).ours(asking("hi", tools=TOOLS[:1]))
    config = body["generationConfig"]
    assert (config["candidateCount"], config["topK"]) == (1, 3)
    assert config["thinkingConfig"] == {"thinkingLevel": "LOW"}
    assert body["safetySettings"] == options["safetySettings"]
    assert [next(iter(tool)) for tool in body["tools"]] == ["googleMaps", "functionDeclarations"]
    assert body["toolConfig"]["retrievalConfig"] == {"languageCode": "de"}
    assert body["toolConfig"]["functionCallingConfig"] == {"mode": "VALIDATED"}
    assert body["store"] is False


async def test_the_effort_of_a_request_replaces_that_of_the_options(both: ComparedAdapters) -> None:
    adapters = both.with_options({"google_thinking_config": {"thinking_budget": 1}})
    request = asking("hi", options=InferenceOptions(reasoning_effort="high"))
    config = (await adapters.ours(request))["generationConfig"]
    assert config["thinkingConfig"] == {"includeThoughts": True, "thinkingLevel": "HIGH"}


@pytest.mark.parametrize("tool", ["web_search", "web_fetch", "code_execution"])
async def test_tools_that_google_runs_are_named_as_by_the_sdk(
    both: ComparedAdapters, tool: str
) -> None:
    adapters = both.with_options({"native_tools": [tool]})
    for name, tools in ((MIDDLE, ()), (NEW, TOOLS)):
        ours, oracle = await adapters.sent(asking("hi", tools=tools), name)
        assert ours == oracle


NESTED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "pairs": {"type": "array", "prefixItems": [{"type": "string", "format": "uri"}]},
        "tuple": {"type": "array", "items": [{"const": 1.5}, {"const": True}, {"const": 3}]},
        "map": {"type": "object", "additionalProperties": {"title": "t", "type": "integer"}},
        "named": {"type": "object", "patternProperties": {"^x": {"const": "k", "examples": [1]}}},
        "size": {
            "description": "how large",
            "anyOf": [
                {"const": "s", "description": "small"},
                {"const": "m", "type": "string"},
            ],
        },
        "mixed": {"anyOf": [{"const": "s"}, {"const": 1}]},
        "typed": {"type": "string", "anyOf": [{"const": "s"}, {"const": "t"}], "format": "date"},
        "never": {"allOf": [{"not": {}}]},
        "some": {"oneOf": [{"type": "number", "exclusiveMinimum": 1}], "title": "x"},
        "anything": True,
    },
    "additionalProperties": False,
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {"part": {"type": "string", "format": "uuid", "description": "an id"}, "any": True},
}


@pytest.mark.parametrize("schema", [*SCHEMAS.values(), NESTED], ids=[*SCHEMAS, "nested"])
async def test_schemas_of_answers_and_tools_are_the_same(
    adapters: Adapters, schema: dict[str, Any]
) -> None:
    tools = (replace(TOOLS[0], parameters=schema),)
    request = replace(asking("hi", tools=tools), output=NativeOutput("out", schema, False))
    ours, oracle = await adapters.sent(request)
    assert ours == oracle


@pytest.mark.parametrize("choice", ["none", "auto", "required", "tool:add"])
@pytest.mark.parametrize("name", [OLD, NEW])
async def test_all_tools_stay_in_the_request_of_one(
    adapters: Adapters, choice: str, name: str
) -> None:
    request = replace(asking("hi", tools=TOOLS), tool_choice=choice)
    ours, oracle = await adapters.sent(request, name)
    assert ours == oracle
    [declared] = ours["tools"]
    assert len(declared["functionDeclarations"]) == len(TOOLS)


@pytest.mark.parametrize("provider", ["google", "pydantic-ai"])
@pytest.mark.parametrize(
    "name, options, output",
    [
        ("gemini-2.5-flash-image", {}, None),
        (MIDDLE, {"native_tools": ["web_search"]}, None),
        (MIDDLE, {}, NativeOutput("out", {"type": "object"}, False)),
    ],
    ids=["tools", "native tools", "structured output"],
)
async def test_what_a_model_cannot_combine_is_refused(
    both: ComparedAdapters,
    provider: str,
    name: str,
    options: dict[str, Any],
    output: NativeOutput | None,
) -> None:
    request = replace(asking("hi", tools=TOOLS), output=output)
    with pytest.raises(InferenceFailed) as caught:
        await both.with_options(options).body(provider, request, name)
    assert caught.value.kind == "invalid_request"


async def test_an_empty_conversation_has_a_message_of_the_user(adapters: Adapters) -> None:
    ours, oracle = await adapters.sent(asking())
    assert ours == oracle


def known_names() -> list[str]:
    names = [str(each) for each in get_args(KnownModelName.__value__)]
    return [name.removeprefix("google:") for name in names if name.startswith("google:")]


def traits_by_the_sdk(name: str) -> GoogleTraits:
    profile: Any = SdkModel(name, provider=GoogleProvider(api_key="unused")).profile
    return GoogleTraits(
        writes_images=profile["supports_image_output"],
        takes_tools=profile["supports_tools"],
        validates_calls=profile["google_supports_strict_tool_definition"],
        combines_tools=profile["google_supports_tool_combination"],
        media_of_results=frozenset(profile["google_supported_mime_types_in_tool_returns"]),
        has_native_output=profile["supports_json_schema_output"],
        thinks=profile["supports_thinking"],
        always_thinks=profile["thinking_always_enabled"],
        takes_levels=profile["google_supports_thinking_level"],
        levels=profile.get("google_thinking_levels", frozenset(LEVELS)),
    )


def test_the_traits_of_models_are_those_that_the_sdk_knows() -> None:
    names = {*known_names(), *NAMES, "gemini-pro", "gemini-1.5-pro", "other-model"}
    assert len(names) > 15
    assert {name: traits_of(name) for name in names} == {
        name: traits_by_the_sdk(name) for name in names
    }
