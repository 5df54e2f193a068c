"""Conversations with Anthropic whose thoughts are stale, stored by the SDK's adapter, or from another server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.domain.ids import CallId
from app.domain.inference.options import InferenceOptions
from app.domain.structs import replace
from app.domain.threads.messages import Message, ToolCall
from app.domain.threads.provider_data import PartKind, ProviderData, ProviderPart
from app.llm.catalog import ModelCatalog
from app.llm.specs import ModelSpec
from app.runtime.ports.models import LanguageModel, ProviderParts
from tests.support.controlled_server import ControlledServer
from tests.support.recorded_answers import REDACTED, SIGNATURE, TEXT, THOUGHT, WIRES
from tests.support.recorded_provider import RecordedProvider, Refusal, recorded_provider
from tests.support.transcripts import asking, assistant, collect, result

pytestmark = pytest.mark.anyio

WIRE = WIRES["anthropic"]
STALE = Refusal(
    400,
    {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "messages.1.content.0: The block is bound to a different conversation",
        },
    },
)
CALL = ToolCall(CallId("toolu_01"), "look", {"place": "attic", "loud": False})
DROPPING = {"prefix_mismatch_behavior": "drop_block"}


@pytest.fixture
async def provider() -> AsyncIterator[RecordedProvider]:
    async with recorded_provider() as running:
        yield running


def model_at(provider: RecordedProvider, *answers: Any, **fields: Any) -> LanguageModel:
    address = provider.plays("anthropic", *answers)
    spec = ModelSpec(
        name="m",
        provider="anthropic",
        model=WIRE.model,
        base_url=address,
        api_key="sk-of-a-test",
        **fields,
    )
    return ModelCatalog([spec], {}).model("m")


def answer(issuer: dict[str, Any], *data: dict[str, Any]) -> Message:
    """An answer that thought twice, wrote a text and called a tool."""
    thoughts = [ProviderPart(PartKind.THINKING, each, THOUGHT) for each in data]
    text = ProviderPart(PartKind.TEXT, {}, "", None, 0, len(TEXT))
    call = ProviderPart(PartKind.CALL, {}, "", CALL.id, len(TEXT), len(TEXT))
    stored = ProviderData(issuer, (*thoughts, text, call))
    return replace(assistant(TEXT, CALL), provider_data=stored)


async def sent(model: LanguageModel, provider: RecordedProvider, *messages: Message) -> Any:
    await collect(model, asking("Find it.", *messages, result(CALL.id, "a key")))
    return provider.requests("anthropic")[-1]


async def test_thoughts_that_the_sdks_adapter_stored_go_back(provider: RecordedProvider) -> None:
    model = model_at(provider, WIRE.second)
    issuer = {
        "adapter": "pydantic-ai",
        "provider": "anthropic",
        "address": f"{provider.origin}/anthropic/",
        "model": WIRE.model,
    }
    message = answer(
        issuer,
        {"signature": SIGNATURE, "provider_name": "anthropic"},
        {"id": "redacted_thinking", "signature": REDACTED, "provider_name": "anthropic"},
    )
    assert WIRE.answer_in(await sent(model, provider, message)) == WIRE.golden


async def test_thoughts_of_another_address_stay_here(provider: RecordedProvider) -> None:
    model = model_at(provider, WIRE.second)
    issuer = {"adapter": "anthropic", "provider": "anthropic", "address": "https://b.test"}
    message = answer({**issuer, "model": "m"}, {"signature": SIGNATURE})
    assert WIRE.answer_in(await sent(model, provider, message)) == WIRE.golden[2:]


async def test_stale_thoughts_are_left_out_of_one_more_request(provider: RecordedProvider) -> None:
    model = model_at(provider, STALE, WIRE.second)
    received = await collect(model, asking("Find it."))
    assert received.text == "It is here."
    first, second = provider.requests("anthropic")
    assert "thinking" not in first
    assert second == {**first, "thinking": {"type": "adaptive", "block_binding": DROPPING}}


async def test_later_requests_leave_out_stale_thoughts_at_once(provider: RecordedProvider) -> None:
    dropped = {"type": "thinking_dropped", "reason": "prefix_binding_mismatch"}
    reported = WIRE.first.replace(
        b'"usage": {"input_tokens"',
        b'"input_transformations": [{"type": "thinking_dropped", "reason": "prefix_binding_mismatch"}],'
        b' "usage": {"input_tokens"',
        1,
    )
    model = model_at(provider, reported)
    received = await collect(model, asking("Find it."))
    [*_, parts] = [each for each in received.chunks if isinstance(each, ProviderParts)]
    assert parts.issuer["input_transformations"] == [dropped]
    body = await sent(model, provider, answer(dict(parts.issuer), {"signature": SIGNATURE}))
    assert body["thinking"] == {"type": "adaptive", "block_binding": DROPPING}


async def test_thinking_that_a_request_sets_up_itself_is_not_changed(
    provider: RecordedProvider,
) -> None:
    thinking = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}
    model = model_at(provider, STALE, WIRE.second, options={"thinking": thinking})
    with pytest.raises(Exception, match="bound to a different conversation"):
        await collect(model, asking("Find it."))
    assert len(provider.requests("anthropic")) == 1


@pytest.mark.parametrize(
    "spec, options, expected",
    [
        ({}, {}, {"anthropic-version": "2026-10-21", "x-api-key": "sk-of-a-test"}),
        # Newer versions of the API refuse these parameters.
        ({"model": "claude-haiku-4-5"}, {"temperature": 0.0}, {"anthropic-version": "2023-06-01"}),
        ({}, {"temperature": 0.0}, {"anthropic-version": "2026-10-21"}),
        ({"headers": {"Anthropic-Version": "2099-01-01"}}, {}, {"anthropic-version": "2099-01-01"}),
        (
            {
                "headers": {"anthropic-beta": "b, a", "x-team": "t"},
                "options": {"anthropic_betas": ["c"], "speed": "fast"},
            },
            {},
            {"anthropic-beta": "a,b,c,fast-mode-2026-02-01", "x-team": "t"},
        ),
    ],
)
async def test_requests_have_the_headers_that_their_parameters_need(
    host: ControlledServer,
    spec: dict[str, Any],
    options: dict[str, Any],
    expected: dict[str, str],
) -> None:
    fields = {"name": "m", "provider": "anthropic", "model": WIRE.model, "api_key": "sk-of-a-test"}
    address = f"http://127.0.0.1:{host.port}"
    catalog = ModelCatalog([ModelSpec(**{**fields, "base_url": address, **spec})], {})
    asked = asking("hi", options=InferenceOptions(**options))
    async with asyncio.TaskGroup() as group:
        group.create_task(collect(catalog.model("m"), asked))
        connection = await host.connection()
        head = await connection.answer(WIRE.second)
    await catalog.aclose()
    lines = [line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if line]
    assert expected.items() <= {name.lower(): value for name, value in lines}.items()
