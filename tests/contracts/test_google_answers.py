"""Google's answers mean to us what they mean to the SDK, and go back to Google as the SDK sends them."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from app.domain.errors import InferenceFailed
from app.domain.structs import replace
from app.domain.threads.messages import Message
from app.llm.catalog import ModelCatalog
from app.llm.specs import ModelSpec
from app.runtime.ports.models import (
    CallArguments,
    CallOpened,
    LanguageModel,
    ModelChunk,
    ModelFinished,
    ProviderParts,
)
from tests.contracts.test_google_requests import named_as_ours
from tests.contracts.test_provider_data import LOOK, answer_of, stored_and_read
from tests.support.controlled_server import ControlledServer
from tests.support.recorded_answers import WIRES, data, google
from tests.support.recorded_provider import RecordedProvider, Refusal, recorded_provider
from tests.support.transcripts import asking, collect, listen, result

pytestmark = [
    pytest.mark.anyio,
    # Google's SDK warns when it is compiled for the first time.
    pytest.mark.filterwarnings("ignore:.*invalid escape sequence"),
    pytest.mark.filterwarnings("ignore:SOMETHING_NEW is not a valid"),
]

WIRE = WIRES["google"]
SIGNATURE, OTHER = "c2lnbmVk", "b3RoZXI+/w=="
IMAGE = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
SEARCH = {"id": "s1", "toolType": "GOOGLE_SEARCH_WEB"}


def call(name: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": arguments, **more}}


def signed(part: dict[str, Any], signature: str = SIGNATURE) -> dict[str, Any]:
    return {**part, "thoughtSignature": signature}


def thought(text: str) -> dict[str, Any]:
    return {"text": text, "thought": True}


def events(candidate: dict[str, Any], **more: Any) -> bytes:
    return data({"candidates": [candidate], "modelVersion": "gemini-3-pro", **more})


def stopped(reason: str, *parts: dict[str, Any], **more: Any) -> bytes:
    content = {"content": {"role": "model", "parts": list(parts)}} if parts else {}
    return events({**content, "finishReason": reason, **more})


ANSWERS: Mapping[str, bytes] = {
    "thoughts": google([thought("Let ")], [thought("me.")], [{"text": "It "}, {"text": "is."}]),
    "signatures in texts": google(
        [{"text": "a"}], [signed({"text": "b"})], [{"text": "c"}], [signed({"text": ""}, OTHER)]
    ),
    "a signed thought": google([thought("a")], [signed(thought("b"))], [{"text": "c"}]),
    "a signature of its own": google([{"text": "a"}], [{"thoughtSignature": SIGNATURE}]),
    "calls": google(
        [{"text": "I look."}],
        [signed(call("look", {"place": "attic"}, id="c1")), call("look", {}, id="c2")],
        [call("look", {"b": [1.0, None], "a": "\u00fc"}, id="c3")],
    ),
    "calls without ids": google([signed(call("look", {"place": "a"}))], [call("look", {})]),
    "a call between texts": google(
        [{"text": "a"}], [call("look", {"place": "a"}, id="c1")], [{"text": "b"}]
    ),
    "code": google(
        [{"executableCode": {"language": "PYTHON", "code": "1"}}],
        [signed({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}})],
        [{"text": "One."}],
    ),
    "an image": google([{"text": "Here."}], [signed(IMAGE)]),
    "a search": google(
        [signed({"toolCall": {**SEARCH, "args": {"queries": ["q"]}}})],
        [signed({"toolResponse": {**SEARCH, "response": {"found": 1}}}, OTHER)],
        [{"text": "Found."}],
    ),
    "a step that prepares media": google(
        [{"toolCall": {"id": "m1"}}], [{"toolResponse": {"id": "m1"}}], [{"text": "Seen."}]
    ),
    "no parts": stopped("STOP", content={"role": "model"}),
    "usage": b"".join(
        data({"candidates": [{"content": {"parts": [{"text": text}]}}], "usageMetadata": usage})
        for text, usage in (
            ("a", {"promptTokenCount": 7, "cachedContentTokenCount": 2}),
            ("b", {"promptTokenCount": 7, "candidatesTokenCount": 1, "totalTokenCount": 8}),
        )
    )
    + stopped("STOP", {"text": "c"}),
    "usage of tools": stopped(
        "STOP",
        {"text": "a"},
    )
    + data({"usageMetadata": {"promptTokenCount": 7, "toolUsePromptTokenCount": 30}}),
    **{
        f"stop reason {reason}": stopped(reason, {"text": "a"})
        for reason in (
            *("STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER", "BLOCKLIST", "SPII"),
            *("PROHIBITED_CONTENT", "IMAGE_SAFETY", "MODEL_ARMOR", "SOMETHING_NEW"),
        )
    },
    "a stop reason after calls": stopped("OTHER", call("look", {"place": "a"}, id="c1")),
    "a blocked prompt": data({"promptFeedback": {"blockReason": "SAFETY"}, "responseId": "r"}),
}


def segment(text: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    return {"segment": {"startIndex": start, "endIndex": end, "text": text, **more}}


def grounded(*supports: dict[str, Any], texts: Sequence[str] = ("Zwölf Äpfel. Ein Ast.",)) -> bytes:
    chunks = [
        {"web": {"uri": "https://a.test", "title": "A"}},
        {"retrievedContext": {"documentName": "d", "title": "D", "text": "q", "ragChunk": {}}},
        {"maps": {"uri": "https://m.test", "title": "M", "text": "there"}},
        {"retrievedContext": {"title": "T", "text": "x", "ragChunk": {"text": "y"}}},
        {"web": {"title": "without an address"}},
    ]
    metadata = {
        "groundingChunks": chunks,
        "groundingSupports": [{"groundingChunkIndices": [0], **each} for each in supports],
    }
    parts = [part for text in texts for part in ({"text": text}, call("look", {"place": "a"}))][:-1]
    return stopped("STOP", *parts, groundingMetadata=metadata)


GROUNDED: Mapping[str, bytes] = {
    "offsets count bytes": grounded(segment("Ein Ast.", 15, 23)),
    "wrong offsets": grounded(segment("Ein Ast.", 3, 9), segment("n", 0, 1)),
    "offsets within a character": grounded(segment("Äpfel", 8, 12)),
    "several sources": grounded({**segment("Zwölf", 0, 6), "groundingChunkIndices": [2, 1, 3, 4]}),
    "unknown sources": grounded({**segment("Zwölf", 0, 6), "groundingChunkIndices": [9]}),
    "no end": grounded({"segment": {"text": "Zwölf"}}, {}),
    "several texts": grounded(
        segment("cd", 2, 4), segment("a", 0, 1), segment("b", 9, 10), texts=["ab", "cd"]
    ),
    "a text by its number": grounded(
        segment("cd", 0, 2, partIndex=1), segment("b", 0, 2, partIndex=0), texts=["ab", "cd"]
    ),
}


@dataclass(frozen=True, slots=True)
class Both:
    provider: RecordedProvider
    ours: LanguageModel
    sdk: LanguageModel

    async def received(self, model: LanguageModel, answer: bytes) -> list[ModelChunk]:
        self.provider.plays("google", answer)
        received = await collect(model, asking("Find it.", tools=[LOOK]))
        return with_plain_ids(received.chunks)

    async def sent_back(self, model: LanguageModel, answer: bytes) -> Any:
        """The contents of the next request, for the answer as it is stored."""
        self.provider.plays("google", answer, WIRE.second)
        message = stored_and_read(await answer_of(model))
        return await self.sent(model, message)

    async def sent(self, model: LanguageModel, message: Message) -> Any:
        self.provider.plays("google", WIRE.second)
        results = [result(each.id, "a key") for each in message.tool_calls]
        await collect(model, asking("Find it.", message, *results, tools=[LOOK]))
        [body] = self.provider.requests("google")
        text = json.dumps(named_as_ours(body["contents"]))
        for number, each in enumerate(message.tool_calls):
            text = text.replace(each.id, f"call {number}")
        # The SDK encodes bytes for URLs.
        return json.loads(text.replace("-", "+").replace("_w==", "/w=="))


def with_plain_ids(chunks: Sequence[ModelChunk]) -> list[ModelChunk]:
    """The chunks with numbers for the ids of calls, which an adapter makes up if there are none."""
    numbers: dict[str, Any] = {}
    plain: list[ModelChunk] = []
    for chunk in chunks:
        match chunk:
            case CallOpened() | CallArguments():
                plain.append(replace(chunk, id=numbers.setdefault(chunk.id, str(len(numbers)))))
            case ProviderParts():
                pass  # each adapter stores provider data in a form of its own
            case ModelFinished(_, usage) if usage is not None:
                # The SDK doesn't say which tokens are thoughts.
                plain.append(replace(chunk, usage=replace(usage, thinking_tokens=None)))
            case _:
                plain.append(chunk)
    return plain


def spec_at(address: str, provider: str = "google", model: str = WIRE.model) -> ModelSpec:
    return ModelSpec(
        name=provider, provider=provider, model=model, base_url=address, api_key="sk-of-a-test"
    )


@pytest.fixture(scope="module")
async def both() -> AsyncIterator[Both]:
    async with recorded_provider() as provider:
        address = f"{provider.origin}/google"
        sdk = spec_at(address, "pydantic-ai", f"google:{WIRE.model}")
        catalog = ModelCatalog([spec_at(address), sdk], {})
        yield Both(provider, catalog.model("google"), catalog.model("pydantic-ai"))
        await catalog.aclose()


@pytest.mark.parametrize(
    "answer", [*ANSWERS.values(), *GROUNDED.values()], ids=[*ANSWERS, *GROUNDED]
)
async def test_an_answer_has_the_chunks_of_the_sdk(both: Both, answer: bytes) -> None:
    ours = await both.received(both.ours, answer)
    assert ours == await both.received(both.sdk, answer)


@pytest.mark.parametrize("which", [name for name in ANSWERS if "stop reason" not in name])
async def test_an_answer_goes_back_as_from_the_sdk(both: Both, which: str) -> None:
    ours = await both.sent_back(both.ours, ANSWERS[which])
    assert ours == await both.sent_back(both.sdk, ANSWERS[which])


@pytest.mark.parametrize("which", ["calls", "code", "an image", "a search", "a signed thought"])
async def test_answers_that_the_sdks_adapter_stored_go_back(both: Both, which: str) -> None:
    both.provider.plays("google", ANSWERS[which])
    stored = stored_and_read(await answer_of(both.sdk))
    assert stored.provider_data is not None
    assert await both.sent(both.ours, stored) == await both.sent(both.sdk, stored)


async def test_signatures_go_back_byte_for_byte(both: Both) -> None:
    signature = "-_+/" * 9
    both.provider.plays(
        "google", google([signed(call("look", {}, id="c"), signature)]), WIRE.second
    )
    answer = stored_and_read(await answer_of(both.ours))
    await collect(both.ours, asking("Find it.", answer, result("c", "a key")))
    [_, body] = both.provider.requests("google")
    assert body["contents"][1]["parts"][0]["thoughtSignature"] == signature


async def test_signatures_of_another_address_stay_here(both: Both) -> None:
    both.provider.plays("google", ANSWERS["a signed thought"])
    answer = await answer_of(both.ours)
    assert answer.provider_data is not None
    issuer = {**answer.provider_data.issuer, "address": "https://b.test"}
    moved = replace(answer, provider_data=replace(answer.provider_data, issuer=issuer))
    [_, sent] = await both.sent(both.ours, moved)
    assert sent == {"role": "model", "parts": [{"text": "c"}]}


async def test_parts_of_tools_stay_here_if_the_model_refuses_them(both: Both) -> None:
    both.provider.plays("google", ANSWERS["a search"], WIRE.second)
    answer = await answer_of(both.ours)
    request = asking("Find it.", answer)
    options = replace(request.options, upstream_model="gemini-2.5-flash")
    await collect(both.ours, replace(request, options=options))
    [_, body] = both.provider.requests("google")
    assert body["contents"][1]["parts"] == [{"text": "Found."}]


def refusal(code: int, status: str, message: str, *details: dict[str, Any]) -> Refusal:
    error = {"code": code, "message": message, "status": status, "details": list(details)}
    return Refusal(code, {"error": error})


QUOTA = "You exceeded your current quota, please check your plan and billing details."
RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17.5s"}
BAD_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
REFUSALS = {
    "rate_limited": refusal(429, "RESOURCE_EXHAUSTED", QUOTA),
    "unauthorized": refusal(400, "INVALID_ARGUMENT", "API key not valid.", BAD_KEY),
    "invalid_request": refusal(400, "INVALID_ARGUMENT", "Unknown name."),
    "context_overflow": refusal(
        400,
        "INVALID_ARGUMENT",
        "The input token count (9) exceeds the maximum number of tokens allowed (1).",
    ),
    "model_not_found": refusal(404, "NOT_FOUND", "models/x is not found"),
    "overloaded": refusal(503, "UNAVAILABLE", "The model is overloaded."),
    "provider": refusal(500, "INTERNAL", "An internal error has occurred."),
    "timeout": refusal(504, "DEADLINE_EXCEEDED", "Too slow."),
}


async def failure_of(model: LanguageModel) -> InferenceFailed:
    with pytest.raises(InferenceFailed) as caught:
        await listen(model, asking("Find it."), [])
    return caught.value


@pytest.mark.parametrize("kind", REFUSALS)
async def test_a_refusal_means_what_it_means_to_the_sdk(both: Both, kind: str) -> None:
    both.provider.plays("google", REFUSALS[kind])
    failures = [await failure_of(model) for model in (both.ours, both.sdk)]
    assert [failure.kind for failure in failures] == [kind, kind]


@pytest.mark.parametrize("kind", ["rate_limited", "overloaded", "provider"])
async def test_a_refusal_within_a_stream_is_the_same(both: Both, kind: str) -> None:
    body = REFUSALS[kind].body
    both.provider.plays("google", google([{"text": "a"}]).replace(b"STOP", b"") + data(body))
    assert (await failure_of(both.ours)).kind == kind


async def test_google_says_when_to_ask_again(both: Both) -> None:
    refused = refusal(429, "RESOURCE_EXHAUSTED", QUOTA, RETRY)
    both.provider.plays("google", refused)
    assert (await failure_of(both.ours)).retry_after == 17.5
    both.provider.plays("google", data(refused.body))
    assert (await failure_of(both.ours)).retry_after == 17.5


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "LANGUAGE", "UNEXPECTED_TOOL_CALL"])
async def test_an_answer_that_ends_in_an_error_fails(both: Both, reason: str) -> None:
    both.provider.plays("google", stopped(reason, {"text": "a"}))
    failures = [await failure_of(model) for model in (both.ours, both.sdk)]
    assert [failure.kind for failure in failures] == ["provider", "provider"]
    assert reason in failures[0].detail


@pytest.mark.parametrize(
    "model, path",
    [
        ("gemini-3.5-flash", "/v1beta/models/gemini-3.5-flash:streamGenerateContent?alt=sse"),
        ("tunedModels/x y", "/v1beta/tunedModels/x%20y:streamGenerateContent?alt=sse"),
    ],
)
@pytest.mark.parametrize("suffix", ["", "/", "/v1beta"])
async def test_a_request_has_the_path_and_the_headers_of_the_api(
    host: ControlledServer, model: str, path: str, suffix: str
) -> None:
    spec = dataclasses.replace(
        spec_at(f"http://127.0.0.1:{host.port}{suffix}", model=model),
        headers={"x-team": "t"},
        options={"extra_headers": {"X-Server-Timeout": "9"}},
    )
    catalog = ModelCatalog([spec], {})
    async with asyncio.TaskGroup() as group:
        group.create_task(collect(catalog.model("google"), asking("hi")))
        connection = await host.connection()
        head = await connection.answer(WIRE.second)
    await catalog.aclose()
    first, *lines = head.decode().split("\r\n")
    assert first == f"POST {path} HTTP/1.1"
    sent = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert sent["x-goog-api-key"] == "sk-of-a-test"
    assert (sent["x-team"], sent["x-server-timeout"]) == ("t", "9")
    assert "authorization" not in sent
