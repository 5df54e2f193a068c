"""What every language model guarantees; our OpenAI client yields the same chunks as the SDK."""

import asyncio
import dataclasses
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

import pytest

from app.domain.errors import InferenceFailed
from app.domain.ids import CallId
from app.domain.inference.options import EffortName, InferenceOptions, ThinkingBudget
from app.domain.structs import replace
from app.domain.threads.messages import Base64Source, Media, MediaType, ToolCall
from app.llm.catalog import ModelCatalog
from app.llm.http.client import StreamingClient
from app.llm.http.endpoints import ModelEndpoint
from app.llm.openai.model import OpenAICompatibleModel
from app.llm.openai.request import request_body
from app.llm.scripted.model import (
    Call,
    Part,
    ScriptedModel,
    ScriptedReasoning,
    ScriptedText,
    ScriptedTurn,
)
from app.llm.specs import ModelSpec
from app.runtime.billing import billed_tokens
from app.runtime.ports.models import (
    LanguageModel,
    ModelChunk,
    ModelFinished,
    ModelRequest,
    ProviderParts,
    StopReason,
    TextChunk,
    UsageSoFar,
)
from tests.support.fake_answers import WORD, answer_to
from tests.support.providers import FakeProvider
from tests.support.transcripts import (
    ADD,
    Received,
    asking,
    assistant,
    collect,
    joined,
    listen,
    result,
)

pytestmark = [
    pytest.mark.anyio,
    # Google's SDK warns when it is compiled for the first time.
    pytest.mark.filterwarnings("ignore:.*invalid escape sequence"),
]

MEDIA_TYPES: Mapping[MediaType, str] = {
    "image": "image/png",
    "audio": "audio/wav",
    "video": "video/mp4",
    "document": "application/pdf",
}
KEY = "sk-very-secret-key"
OURS, ORACLE, SCRIPTED = "ours", "sdk-openai", "scripted"
ANTHROPIC, ANTHROPIC_ORACLE = "anthropic", "sdk-anthropic"
OPENAI_WIRES = (OURS, ORACLE)
GOOGLE, GOOGLE_ORACLE = "google", "sdk-google"
WIRES = (*OPENAI_WIRES, ANTHROPIC, ANTHROPIC_ORACLE, GOOGLE, GOOGLE_ORACLE)
OWN = (OURS, ANTHROPIC, GOOGLE)
ALL = (*WIRES, SCRIPTED)


@dataclass(frozen=True, slots=True)
class Models:
    """Models of every kind that all answer like the fake provider."""

    provider: FakeProvider
    catalogs: list[ModelCatalog]

    def of(
        self, kind: str, model: str = "fake-5", *, timeout: float = 20, idle_timeout: float = 20
    ) -> LanguageModel:
        if kind == SCRIPTED:
            return ScriptedModel(model, lambda request: _turn(request, model))
        spec = dataclasses.replace(
            _spec(kind, model, self.provider), timeout=timeout, idle_timeout=idle_timeout
        )
        catalog = ModelCatalog([spec], {})
        self.catalogs.append(catalog)
        return catalog.model(spec.name)


def _spec(kind: str, model: str, provider: FakeProvider) -> ModelSpec:
    match kind:
        case "ours":
            name, address = "openai", provider.base_url
        case "sdk-openai":
            name, model, address = "pydantic-ai", f"openai-chat:{model}", provider.base_url
        case "sdk-anthropic":
            name, model, address = "pydantic-ai", f"anthropic:{model}", provider.origin
        case "sdk-google":
            name, model, address = "pydantic-ai", f"google:{model}", provider.origin
        case _:
            name, address = kind, provider.origin
    return ModelSpec(name=kind, provider=name, model=model, base_url=address, api_key=KEY)


def _turn(request: ModelRequest, model: str) -> ScriptedTurn:
    answer = answer_to(json.loads(request_body(request, model, {})))
    parts: list[Part] = [ScriptedReasoning(answer.reasoning)]
    if answer.calls:
        call = Call(tool=answer.calls.tool, arguments=answer.calls.arguments)
        parts += [call] * answer.calls.times
    else:
        parts.append(ScriptedText((WORD,) * answer.words))
    return ScriptedTurn(tuple(parts), StopReason.MAX_TOKENS if answer.stop == "length" else None)


@pytest.fixture
async def models(provider: FakeProvider) -> AsyncIterator[Models]:
    made = Models(provider, [])
    yield made
    for catalog in made.catalogs:
        await catalog.aclose()


@pytest.mark.parametrize("kind", ALL)
async def test_text_arrives_whole_and_the_answer_ends_once(models: Models, kind: str) -> None:
    received = await collect(models.of(kind, "fake-50"), asking("hello"))
    assert received.text == WORD * 50
    assert received.finished.stop_reason is StopReason.END_TURN


@pytest.mark.parametrize("kind", ALL)
async def test_reasoning_is_separate_from_text(models: Models, kind: str) -> None:
    received = await collect(models.of(kind), asking("THINK first"))
    assert received.reasoning == "Let me think. "
    assert received.text == WORD * 5


@pytest.mark.parametrize("kind", ALL)
async def test_the_pieces_of_a_calls_arguments_are_joined(models: Models, kind: str) -> None:
    received = await collect(models.of(kind), asking('CALL add {"a": 1, "b": 2}', tools=[ADD]))
    [(name, arguments)] = received.calls.values()
    assert name == "add"
    assert json.loads(arguments) == {"a": 1, "b": 2}
    assert received.finished.stop_reason is StopReason.TOOL_USE


@pytest.mark.parametrize("kind", ALL)
async def test_parallel_calls_have_distinct_ids(models: Models, kind: str) -> None:
    received = await collect(models.of(kind), asking('CALLS 3 add {"a": 1, "b": 2}', tools=[ADD]))
    assert len(received.calls) == 3
    assert {json.dumps(json.loads(arguments)) for _, arguments in received.calls.values()} == {
        '{"a": 1, "b": 2}'
    }


@pytest.mark.parametrize("kind", ALL)
async def test_results_are_read_and_answered_with_text(models: Models, kind: str) -> None:
    call = ToolCall(CallId("call_1"), "add", {"a": 1, "b": 2})
    request = asking(
        'CALL add {"a": 1, "b": 2}', assistant("", call), result("call_1", "3"), tools=[ADD]
    )
    received = await collect(models.of(kind), request)
    assert received.calls == {}
    assert received.text == WORD * 5


@pytest.mark.parametrize("kind", ALL)
async def test_tokens_are_counted(models: Models, kind: str) -> None:
    received = await collect(models.of(kind, "fake-7"), asking("hello"))
    usage = received.finished.usage
    assert usage is not None
    assert usage.completion_tokens == 7
    assert usage.prompt_tokens
    assert usage.total_tokens == usage.prompt_tokens + 7


@pytest.mark.parametrize("kind", WIRES)
async def test_cached_tokens_are_counted(models: Models, kind: str) -> None:
    received = await collect(models.of(kind), asking("hello"))
    assert received.finished.usage is not None
    assert received.finished.usage.cache_read_tokens == 3


@pytest.mark.parametrize("kind", WIRES)
async def test_the_prompts_tokens_include_those_of_the_cache(models: Models, kind: str) -> None:
    """The ledger's `input` means the same for every provider."""
    text = "count the tokens of this " * 4
    request = replace(asking(text), system_prompt="")
    received = await collect(models.of(kind, "fake-7"), request)
    usage = received.finished.usage
    assert usage is not None
    assert usage.prompt_tokens == 1 + len(text) // 4
    assert billed_tokens(usage).output == 7


@pytest.mark.parametrize("kind", ALL)
async def test_a_truncated_answer_stops_with_max_tokens(models: Models, kind: str) -> None:
    received = await collect(models.of(kind), asking("STOP length"))
    assert received.finished.stop_reason is StopReason.MAX_TOKENS


@pytest.mark.parametrize("kind", OPENAI_WIRES)
async def test_a_filtered_answer_stops_with_content_filter(models: Models, kind: str) -> None:
    received = await collect(models.of(kind), asking("STOP content_filter"))
    assert received.finished.stop_reason is StopReason.CONTENT_FILTER


@pytest.mark.parametrize("kind", WIRES)
@pytest.mark.parametrize(
    "chaos, failure, retryable",
    [
        ("429", "rate_limited", True),
        ("500", "provider", True),
        ("503", "overloaded", True),
        ("400", "invalid_request", False),
        ("401", "unauthorized", False),
        ("404", "model_not_found", False),
        ("context", "context_overflow", False),
    ],
)
async def test_each_http_error_has_a_failure_kind(
    models: Models, kind: str, chaos: str, failure: str, retryable: bool
) -> None:
    error = await _failure(models.of(kind), f"CHAOS {chaos}")
    assert (error.kind, error.retryable) == (failure, retryable)


@pytest.mark.parametrize("kind", OPENAI_WIRES)
async def test_an_exhausted_quota_is_not_a_rate_limit(models: Models, kind: str) -> None:
    error = await _failure(models.of(kind), "CHAOS quota")
    assert (error.kind, error.retryable) == ("unauthorized", False)


@pytest.mark.parametrize("kind", WIRES)
async def test_retry_after_is_read_in_seconds_and_as_a_date(models: Models, kind: str) -> None:
    assert (await _failure(models.of(kind), "CHAOS 429")).retry_after == 7
    at = (await _failure(models.of(kind), "CHAOS 429-date")).retry_after
    assert at is not None
    assert 3500 < at <= 3600


@pytest.mark.parametrize("kind", WIRES)
@pytest.mark.parametrize("chaos", ["401", "cut"])
async def test_no_failure_contains_the_api_key(models: Models, kind: str, chaos: str) -> None:
    error = await _failure(models.of(kind), f"CHAOS {chaos}")
    assert KEY not in f"{error} {error.detail} {error.__cause__!r}"


@pytest.mark.parametrize("kind", WIRES)
@pytest.mark.parametrize(
    "chaos, failure",
    [
        ("cut", "stream_interrupted"),
        ("early-end", "stream_interrupted"),
        ("error", "provider"),
        ("malformed", "provider"),
    ],
)
async def test_a_broken_stream_keeps_the_chunks_before_the_failure(
    models: Models, kind: str, chaos: str, failure: str
) -> None:
    emitted: list[ModelChunk] = []
    error = await _failure(models.of(kind), f"CHAOS {chaos}", emitted)
    assert (error.kind, error.retryable) == (failure, True)
    assert without_usage(emitted) == [TextChunk(WORD * 3)]


@pytest.mark.parametrize("kind", WIRES)
async def test_a_model_that_stops_streaming_times_out(models: Models, kind: str) -> None:
    emitted: list[ModelChunk] = []
    async with asyncio.timeout(5):
        error = await _failure(models.of(kind, idle_timeout=0.2), "CHAOS stall", emitted)
    assert (error.kind, error.retryable) == ("timeout", True)
    assert without_usage(emitted) == [TextChunk(WORD * 3)]


@pytest.mark.parametrize("kind", WIRES)
async def test_a_model_that_never_begins_times_out(models: Models, kind: str) -> None:
    async with asyncio.timeout(5):
        error = await _failure(models.of(kind, timeout=0.2), "CHAOS silent")
    assert (error.kind, error.retryable) == ("timeout", True)


@pytest.mark.parametrize("kind", WIRES)
async def test_an_unreachable_server_is_retryable(models: Models, kind: str) -> None:
    unreachable = FakeProvider(1)
    error = await _failure(Models(unreachable, models.catalogs).of(kind), "hello")
    assert (error.kind, error.retryable) == ("provider", True)


@pytest.mark.parametrize("kind", WIRES)
async def test_a_model_retries_nothing_itself(models: Models, kind: str) -> None:
    before = models.provider.stats().requests
    await _failure(models.of(kind), "CHAOS 503")
    assert models.provider.stats().requests == before + 1


@pytest.mark.parametrize("kind", WIRES)
@pytest.mark.parametrize("leaving", ["break", "exception", "cancellation"])
async def test_leaving_the_stream_closes_the_socket(
    models: Models, kind: str, leaving: str
) -> None:
    before = models.provider.stats().closed_early
    model = models.of(kind, "fake-1000-20ms")
    begun = asyncio.Event()

    async def listen() -> None:
        async with model.stream(asking("hello")) as stream:
            async for _ in stream:
                begun.set()
                if leaving == "break":
                    break
                if leaving == "exception":
                    raise LookupError("raised by the consumer")

    match leaving:
        case "break":
            await listen()
        case "exception":
            with pytest.raises(LookupError):
                await listen()
        case _:
            async with asyncio.TaskGroup() as group:
                listening = group.create_task(listen())
                await begun.wait()
                listening.cancel()
    stats = await asyncio.to_thread(models.provider.stats, closed_early=before + 1)
    assert stats.closed_early == before + 1


@pytest.mark.parametrize(
    "prompt",
    [
        "hello",
        "THINK first",
        'CALL add {"a": 1, "b": 2}',
        'CALLS 3 add {"a": 1, "b": 2}',
        'THINK, then CALLS 2 add {"a": 1, "b": 2}',
        "STOP length",
    ],
)
@pytest.mark.parametrize(
    "own, sdk", [(OURS, ORACLE), (ANTHROPIC, ANTHROPIC_ORACLE)], ids=["openai", "anthropic"]
)
async def test_our_model_yields_the_chunks_of_the_sdk(
    models: Models, prompt: str, own: str, sdk: str
) -> None:
    ours = await collect(models.of(own), asking(prompt, tools=[ADD]))
    oracle = await collect(models.of(sdk), asking(prompt, tools=[ADD]))
    assert without_provider_parts(ours) == without_provider_parts(oracle)


def without_usage(emitted: Sequence[ModelChunk]) -> list[ModelChunk]:
    """Some providers count the tokens while they stream."""
    return joined([each for each in emitted if not isinstance(each, UsageSoFar)])


def without_provider_parts(received: Received) -> list[ModelChunk]:
    """Each adapter stores provider data in a form of its own."""
    return joined(
        [each for each in received.chunks if not isinstance(each, ProviderParts | UsageSoFar)]
    )


@pytest.mark.parametrize("kind", ALL)
async def test_the_upstream_model_of_the_request_is_used(models: Models, kind: str) -> None:
    request = asking("hello", options=InferenceOptions(upstream_model="fake-3"))
    received = await collect(models.of(kind, "fake-9"), request)
    if kind == SCRIPTED:
        assert received.text  # a scripted model ignores the upstream name
    else:
        assert received.text == WORD * 3


@pytest.mark.parametrize("kind", WIRES)
async def test_options_reach_the_provider(models: Models, kind: str) -> None:
    options = InferenceOptions(temperature=0.5, top_p=0.75, max_tokens=321)
    await collect(models.of(kind), asking("hello", options=options))
    asked = models.provider.asked()
    body = {**asked, **asked.get("generationConfig", {})}
    limit = {"max_tokens", "max_completion_tokens", "maxOutputTokens"} & body.keys()
    assert body["temperature"] == 0.5
    assert body.get("top_p", body.get("topP")) == 0.75
    assert [body[key] for key in limit] == [321]


@pytest.mark.parametrize("kind", OPENAI_WIRES)
@pytest.mark.parametrize("effort", ["none", "low", "medium", "high"])
async def test_the_effort_is_spelled_as_the_sdk_spells_it(
    models: Models, kind: str, effort: EffortName
) -> None:
    options = InferenceOptions(reasoning_effort=effort)
    await collect(models.of(kind, "gpt-5.4"), asking("hello", options=options))
    assert models.provider.asked()["reasoning_effort"] == effort


@pytest.mark.parametrize("kind", OPENAI_WIRES)
async def test_a_budget_becomes_the_nearest_effort(models: Models, kind: str) -> None:
    options = InferenceOptions(reasoning_effort=ThinkingBudget(4000))
    await collect(models.of(kind, "gpt-5.4"), asking("hello", options=options))
    assert models.provider.asked()["reasoning_effort"] == "medium"


@pytest.mark.parametrize(
    "anthropic, google", [(ANTHROPIC, GOOGLE), (ANTHROPIC_ORACLE, GOOGLE_ORACLE)]
)
async def test_anthropic_and_google_get_the_budget_unchanged(
    models: Models, anthropic: str, google: str
) -> None:
    options = InferenceOptions(reasoning_effort=ThinkingBudget(4000), max_tokens=9000)
    await collect(models.of(anthropic), asking("hello", options=options))
    assert models.provider.asked()["thinking"]["budget_tokens"] == 4000
    await collect(models.of(google, "gemini-2.5-flash"), asking("hello", options=options))
    config = models.provider.asked()["generationConfig"]["thinkingConfig"]
    assert 4000 in config.values()


async def test_a_request_without_options_has_no_option_fields(models: Models) -> None:
    await collect(models.of(OURS), asking("hello"))
    assert models.provider.asked().keys() == {"model", "messages", "stream", "stream_options"}


@pytest.mark.parametrize("kind", OWN)
async def test_our_model_joins_chunks_that_arrive_together(models: Models, kind: str) -> None:
    received = await collect(models.of(kind, "fake-1000"), asking("hello"))
    assert received.text == WORD * 1000
    assert received.lists < 200


@pytest.mark.parametrize("kind", OWN)
async def test_our_model_reuses_its_connection(models: Models, kind: str) -> None:
    before = models.provider.stats().connections
    model = models.of(kind)
    for _ in range(3):
        async with model.stream(asking("hello")) as stream:
            async for chunks in stream:
                if isinstance(chunks[-1], ModelFinished):
                    break
    assert models.provider.stats().connections == before + 1


@pytest.mark.parametrize("kind", OWN)
async def test_our_model_streams_two_hundred_answers_at_once(models: Models, kind: str) -> None:
    model = models.of(kind, "fake-5-50ms")
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        received = [group.create_task(collect(model, asking("hello"))) for _ in range(200)]
    assert {task.result().text for task in received} == {WORD * 5}


@pytest.mark.parametrize("kind", OWN)
async def test_our_model_refuses_an_answer_that_is_not_streamed(models: Models, kind: str) -> None:
    error = await _failure(models.of(kind), "CHAOS unstreamed")
    assert error.kind == "provider"
    assert "without streaming" in error.detail


async def test_our_model_hides_a_key_that_is_no_valid_header(models: Models) -> None:
    endpoint = ModelEndpoint(
        base_url=models.provider.base_url, model="fake-5", api_key=f"{KEY}\r\nx"
    )
    async with StreamingClient() as client:
        error = await _failure(OpenAICompatibleModel(endpoint, client), "hello")
    assert error.kind == "invalid_request"
    assert KEY not in f"{error} {error.__cause__!r} {endpoint!r}"


async def test_the_fake_provider_can_fail_once(models: Models) -> None:
    model = models.of(OURS)
    assert (await _failure(model, "CHAOS 503 once")).kind == "overloaded"
    assert (await collect(model, asking("CHAOS 503 once"))).text == WORD * 5


async def _failure(
    model: LanguageModel, prompt: str, emitted: list[ModelChunk] | None = None
) -> InferenceFailed:
    """The failure of a request; `emitted` receives the chunks that came before it."""
    with pytest.raises(InferenceFailed) as caught:
        await listen(model, asking(prompt), [] if emitted is None else emitted)
    return caught.value


@pytest.mark.parametrize("type_", ["image", "audio", "video", "document"])
@pytest.mark.parametrize("kind", ALL)
async def test_media_are_sent_or_replaced_by_a_notice(
    models: Models, provider: FakeProvider, kind: str, type_: MediaType
) -> None:
    data = b64encode(b"the bytes").decode()
    media = Media(type_, Base64Source(MEDIA_TYPES[type_], data), "a title")
    asked = asking("WORDS 3")
    [message] = asked.messages
    asked = replace(asked, messages=[replace(message, content=(*message.content, media))])
    received = await collect(models.of(kind), asked)
    assert received.finished.stop_reason is StopReason.END_TURN
    if kind != SCRIPTED:
        sent = json.dumps(provider.asked())
        assert data in sent or data.rstrip("=") in sent or "that can't be shown to you" in sent
