"""Our requests to Anthropic are those that the SDK's adapter sends, and our traits of models are the SDK's."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, get_args

import pytest
from pydantic_ai.models import KnownModelName
from pydantic_ai.providers.anthropic import AnthropicProvider

from app.domain.errors import InferenceFailed
from app.domain.ids import CallId, MessageId
from app.domain.inference.options import EffortName, InferenceOptions, ThinkingBudget
from app.domain.structs import replace
from app.domain.threads.messages import (
    Base64Source,
    Block,
    Media,
    Message,
    MessageRange,
    Role,
    Summary,
    Text,
    ToolCall,
    UnknownBlock,
    UrlSource,
)
from app.domain.tools.tool_calls import ToolDescriptor
from app.llm.anthropic.model_traits import ModelTraits, traits_of
from app.runtime.ports.outputs import NativeOutput
from tests.support.compared_adapters import Adapters, ComparedAdapters, compared_adapters
from tests.support.transcripts import ADD, asking, assistant, result, user

pytestmark = [
    pytest.mark.anyio,
    # The SDK says what it leaves out, and which models will be switched off.
    pytest.mark.filterwarnings("ignore:Sampling parameters"),
    pytest.mark.filterwarnings("ignore:The model .* is deprecated"),
    pytest.mark.filterwarnings("ignore:Using Claude with"),
]

OLD, MIDDLE, NEW = "claude-opus-4-1", "claude-sonnet-4-5", "claude-sonnet-5-5"
NAMES = (
    *(OLD, MIDDLE, NEW, "claude-3-5-haiku-latest", "claude-opus-4-5", "claude-sonnet-4-6"),
    *("claude-opus-4-7", "claude-opus-5", "claude-opus-5-5", "claude-haiku-5-5", "claude-fable-5"),
)
TOOLS = (ADD, ToolDescriptor(name="now", description="", parameters={"type": "object"}))
CALLS = (ToolCall(CallId("c1"), "add", {"b": 1, "a": 2}), ToolCall(CallId("c2"), "now", None))


@pytest.fixture(scope="module")
async def both() -> AsyncIterator[ComparedAdapters]:
    async with compared_adapters("anthropic", NEW, without_defaults) as opened:
        yield opened


@pytest.fixture(scope="module")
def adapters(both: ComparedAdapters) -> Adapters:
    return both.with_options({})


def without_defaults(body: dict[str, Any]) -> dict[str, Any]:
    """The body without fields that say what is so without them."""
    if body.get("tool_choice") == {"type": "auto"}:
        del body["tool_choice"]
    for message in body["messages"]:
        for block in message["content"]:
            if block.get("is_error") is False:
                del block["is_error"]
    return body


def system(text: str) -> Message:
    return Message(id=MessageId("s"), role=Role.SYSTEM, content=(Text(text),))


def said(*blocks: Block) -> Message:
    return Message(id=MessageId("u"), role=Role.USER, content=blocks)


def media(type_: Any, media_type: str) -> Media:
    return Media(type_, Base64Source(media_type, "aGk="))


CONVERSATIONS: Mapping[str, list[Message]] = {
    "calls": [user("a"), assistant("x", *CALLS), result("c2", "noon"), result("c1", "3")],
    "input after results": [
        *(user("a"), assistant("", *CALLS), result("c1", "3"), result("c2", "4")),
        *(user("b"), user("c")),
    ],
    "system messages": [
        *(system("s1"), system("s2"), user("a"), system("s3"), assistant("x", *CALLS)),
        *(result("c1", "1"), result("c2", "2"), system("s4"), system("s5"), user("b")),
        *(assistant("y"), system("s6"), assistant("z"), user("c")),
    ],
    "a shortened history": [assistant("as I said"), user("go on")],
    "a shortened history with a summary": [system("sum"), assistant("as I said"), user("go on")],
    "an answer that is empty": [user("a"), assistant(""), user("b")],
    "parts": [
        said(
            Text("look"),
            media("image", "image/png"),
            Media("image", UrlSource("https://x.test/y.png")),
            media("document", "application/pdf"),
            media("document", "text/plain"),
            Media("document", UrlSource("https://x.test/y.pdf")),
            Summary("before", MessageRange(1, 2)),
            UnknownBlock({"type": "hologram"}),
        )
    ],
}


@pytest.mark.parametrize("name", [MIDDLE, NEW, "claude-haiku-5-5"])
@pytest.mark.parametrize("messages", CONVERSATIONS.values(), ids=CONVERSATIONS)
async def test_a_conversation_has_the_same_turns(
    adapters: Adapters, messages: list[Message], name: str
) -> None:
    ours, oracle = await adapters.sent(asking(*messages, tools=TOOLS), name)
    assert ours == oracle


OPTIONS: list[InferenceOptions] = [
    InferenceOptions(),
    InferenceOptions(temperature=0.5, top_p=0.75, max_tokens=321),
    *(InferenceOptions(reasoning_effort=effort) for effort in get_args(EffortName)),
]


@pytest.mark.parametrize("name", NAMES)
async def test_each_model_gets_the_same_parameters(adapters: Adapters, name: str) -> None:
    for options in OPTIONS:
        ours, oracle = await adapters.sent(asking("hi", tools=TOOLS, options=options), name)
        assert ours == oracle


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.5, "top_p": 0.5, "top_k": 3, "stop_sequences": ["x"], "max_tokens": 9},
        {"anthropic_thinking": {"type": "enabled", "budget_tokens": 2000}},
        {"anthropic_thinking": {"type": "adaptive"}, "anthropic_effort": "low"},
        {"thinking": "high"},
        {"thinking": True},
        {"thinking": False},
        {"anthropic_effort": "max"},
        {"parallel_tool_calls": False},
        {"service_tier": "default", "anthropic_metadata": {"user_id": "u"}},
        {"extra_body": {"inference_geo": "us"}, "seed": 3},
        {"anthropic_cache": False},
        {"anthropic_cache": True},
        {"anthropic_cache": "1h"},
        {"anthropic_cache_messages": "1h", "anthropic_cache_instructions": True},
        {"anthropic_cache_messages": True, "anthropic_cache_tool_definitions": "1h"},
        {"anthropic_eager_input_streaming": True},
    ],
    ids=json.dumps,
)
async def test_the_options_of_a_model_mean_the_same(
    both: ComparedAdapters, options: Mapping[str, Any]
) -> None:
    adapters = both.with_options(options)
    for name in (MIDDLE, "claude-opus-4-6"):
        ours, oracle = await adapters.sent(asking("hi", tools=TOOLS), name)
        assert ours == oracle


async def test_parameters_of_the_api_go_into_the_request_as_they_are(
    both: ComparedAdapters,
) -> None:
    options = {
        "thinking": {"type": "adaptive", "display": "omitted"},
        "output_config": {"effort": "low"},
        "tools": [{"type": "web_search_20260209", "name": "web_search"}],
        "cache_control": {"type": "ephemeral"},
    }
    body = await both.with_options(options).ours(asking("hi", tools=[ADD]))
    assert {key: body[key] for key in options if key != "tools"} == {
        key: value for key, value in options.items() if key != "tools"
    }
    assert [tool["name"] for tool in body["tools"]] == ["web_search", "add"]
    assert "cache_control" not in body["tools"][-1]


SCHEMAS: Mapping[str, dict[str, Any]] = {
    "an object": {
        "type": "object",
        "title": "T",
        "properties": {
            "b": {"type": "integer", "minimum": 1, "description": "few"},
            "a": {"type": "string", "format": "date", "pattern": "x"},
            "c": {"type": "string", "format": "iban"},
        },
        "required": ["a"],
        "additionalProperties": True,
    },
    "choices": {
        "type": "object",
        "properties": {
            "kind": {"const": "k"},
            "size": {"type": "string", "enum": ["s", "m"]},
            "either": {"oneOf": [{"type": "integer"}, {"type": "null"}]},
            "all": {"allOf": [{"$ref": "#/$defs/part"}]},
        },
        "$defs": {"part": {"type": "object", "properties": {"n": {"type": "number"}}}},
    },
    "lists": {
        "type": "object",
        "properties": {
            "one": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "many": {"type": "array", "items": {"type": "boolean"}, "minItems": 3, "maxItems": 9},
        },
    },
}


@pytest.mark.filterwarnings("ignore:.*dict.*fields are not supported")
@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
async def test_a_format_of_the_answer_has_the_same_schema(
    adapters: Adapters, schema: dict[str, Any]
) -> None:
    request = replace(asking("hi", tools=TOOLS), output=NativeOutput("out", schema, False))
    ours, oracle = await adapters.sent(request)
    assert ours == oracle


async def test_a_value_of_several_types_is_a_choice_of_them(adapters: Adapters) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": ["string", "null"], "description": "perhaps"}},
    }
    request = replace(asking("hi"), output=NativeOutput("out", schema, False))
    body = await adapters.ours(request)
    sent = body["output_config"]["format"]["schema"]
    assert [each["type"] for each in sent["properties"]["a"]["anyOf"]] == ["string", "null"]


@pytest.mark.parametrize(
    "choice, name, expected",
    [
        ("required", MIDDLE, {"type": "any"}),
        ("tool:add", MIDDLE, {"type": "tool", "name": "add"}),
        ("none", NEW, {"type": "none"}),
        ("auto", NEW, None),
    ],
)
async def test_all_tools_stay_in_the_request_of_one(
    adapters: Adapters, choice: str, name: str, expected: Any
) -> None:
    request = replace(asking("hi", tools=TOOLS), tool_choice=choice)
    body = await adapters.ours(request, name)
    assert body.get("tool_choice") == expected
    assert [tool["name"] for tool in body["tools"]] == ["add", "now"]


@pytest.mark.parametrize("provider", ["anthropic", "pydantic-ai"])
async def test_a_call_that_a_model_cannot_be_made_to_do_is_refused(
    adapters: Adapters, provider: str
) -> None:
    request = replace(asking("hi", tools=TOOLS), tool_choice="required")
    with pytest.raises(InferenceFailed) as caught:
        await adapters.body(provider, request, NEW)
    assert caught.value.kind == "invalid_request"


async def test_a_budget_becomes_the_nearest_effort_of_models_without_budgets(
    adapters: Adapters,
) -> None:
    options = InferenceOptions(reasoning_effort=ThinkingBudget(4000))
    body = await adapters.ours(asking("hi", options=options))
    assert body["thinking"] == {"type": "adaptive"}
    assert body["output_config"] == {"effort": "medium"}


@pytest.mark.parametrize("type_", ["audio", "video", "image", "document"])
async def test_media_that_the_api_does_not_take_are_replaced_alone(
    adapters: Adapters, type_: Any
) -> None:
    message = said(media("image", "image/png"), media(type_, "application/x-unknown"))
    body = await adapters.ours(asking(message))
    image, notice = body["messages"][0]["content"]
    assert image["source"]["data"] == "aGk="
    assert "that can't be shown to you" in notice["text"]


async def test_results_of_tools_may_have_images(adapters: Adapters) -> None:
    shown = Message(
        id=MessageId("t"),
        role=Role.TOOL,
        content=(Text("the map"), media("image", "image/png")),
        tool_call_id=CallId("c1"),
    )
    request = asking("hi", assistant("", CALLS[0]), shown, tools=TOOLS)
    body = await adapters.ours(request)
    [returned] = body["messages"][-1]["content"]
    assert [block["type"] for block in returned["content"]] == ["text", "image"]


def known_names() -> list[str]:
    names = [name for each in get_args(KnownModelName.__value__) for name in [str(each)]]
    return [name.removeprefix("anthropic:") for name in names if name.startswith("anthropic:")]


def traits_by_the_sdk(name: str) -> ModelTraits:
    profile: Any = AnthropicProvider.model_profile(name)
    is_small = profile["anthropic_rejects_max_tokens_beyond_context_window"]
    largest = profile["anthropic_max_output_tokens"] or 16_384
    off = profile["anthropic_disables_thinking_with_between_tools"]
    return ModelTraits(
        max_tokens=4_096 if is_small else largest,
        is_adaptive=profile["anthropic_supports_adaptive_thinking"],
        takes_effort=profile["anthropic_supports_effort"],
        takes_max_effort=profile["anthropic_supports_max_effort"],
        takes_budgets=not profile["anthropic_disallows_budget_thinking"],
        takes_sampling=not profile["anthropic_disallows_sampling_settings"],
        thinks_by_default=profile["thinking_enabled_by_default"],
        always_thinks=profile["thinking_always_enabled"],
        thinking_off="between_tools" if off else "disabled",
        can_be_forced=profile["supports_forced_tool_choice"],
        binds_thoughts=profile["anthropic_binds_thinking_blocks"],
        has_system_messages=profile["supports_inline_system_prompts"],
        mistakes_system_for_result=profile["anthropic_distrusts_system_after_tool_result"],
        has_native_output=profile["supports_json_schema_output"],
    )


def test_the_traits_of_models_are_those_that_the_sdk_knows() -> None:
    names = {*known_names(), *NAMES, "claude-mythos-preview", "claude-mythos-5-1", "other-model"}
    assert len(names) > 15
    assert {name: traits_of(name) for name in names} == {
        name: traits_by_the_sdk(name) for name in names
    }
