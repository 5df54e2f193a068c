"""What providers want back with their answers: signatures, encrypted reasoning, and parts of their own.

Recorded streams stand for the providers. A golden second request shows what each of them gets back.
"""

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from app.domain.errors import InferenceFailed
from app.domain.ids import MessageId
from app.domain.json_values import JsonObject
from app.domain.threads.messages import Message, Role, Text
from app.domain.tools.tool_calls import ToolDescriptor
from app.runtime.inference.streamed_answer import StreamedAnswer
from app.runtime.ports.models import LanguageModel
from app.storage.codec import message_columns, message_of
from tests.support.recorded_answers import (
    ENCRYPTED,
    REDACTED,
    SIGNATURE,
    THOUGHT,
    WIRES,
    Wire,
)
from tests.support.recorded_models import RecordedModels, recorded_models
from tests.support.streamed_answers import Listener
from tests.support.transcripts import asking, collect, result

pytestmark = [
    pytest.mark.anyio,
    # Google's SDK warns when it is compiled for the first time.
    pytest.mark.filterwarnings("ignore:.*invalid escape sequence"),
]

LOOK = ToolDescriptor(
    name="look",
    description="Look somewhere.",
    parameters={
        "type": "object",
        "properties": {"place": {"type": "string"}, "loud": {"type": "boolean"}},
    },
)
OTHER = replace(WIRES["openrouter"], model="google/gemini")
ALL = [pytest.param(wire, id=name) for name, wire in WIRES.items()]


async def second_request(recorded: RecordedModels, wire: Wire, answer: Message) -> Any:
    """The body of a request with this answer and the results of its calls."""
    model = recorded.model(wire, wire.second)
    results = [result(call.id, "a key") for call in answer.tool_calls]
    await collect(model, asking("Find it.", answer, *results, tools=[LOOK]))
    [request] = recorded.provider.requests(wire.name)
    return request


@pytest.fixture
async def recorded() -> AsyncIterator[RecordedModels]:
    async with recorded_models([*WIRES.values(), OTHER]) as opened:
        yield opened


async def answer_of(model: LanguageModel) -> Message:
    """The message that a run makes of the next answer, also if the answer breaks off."""
    answer = StreamedAnswer(Listener())  # type: ignore[arg-type]
    answer.begin_attempt("scripted")
    try:
        async with model.stream(asking("Find it.", tools=[LOOK])) as stream:
            async for chunks in stream:
                for chunk in chunks:
                    answer.add(chunk)
        answer.complete("")
    except InferenceFailed:
        answer.keep_complete_calls("")
    return Message(
        id=MessageId("0199a0b0-0000-7000-8000-000000000001"),
        role=Role.ASSISTANT,
        content=(Text(answer.text, answer.citations),) if answer.text else (),
        tool_calls=tuple(answer.calls),
        provider_data=answer.provider_data,
    )


def stored_and_read(message: Message) -> Message:
    """The message as another process reads it. Postgres sorts the keys of objects."""
    columns = message_columns(message)
    row = {
        key: json.loads(columns[key], object_pairs_hook=as_jsonb) if columns[key] else columns[key]
        for key in ("content", "tool_calls", "edited_arguments")
    }
    return message_of({**columns, **row, "seq": 1, "created_at": None}).message


def as_jsonb(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(sorted(pairs, key=lambda pair: (len(pair[0]), pair[0])))


@pytest.mark.parametrize("wire", ALL)
async def test_a_provider_gets_back_what_it_has_sent(recorded: RecordedModels, wire: Wire) -> None:
    answer = await answer_of(recorded.model(wire, wire.first))
    request = await second_request(recorded, wire, answer)
    assert wire.answer_in(request) == wire.golden


@pytest.mark.parametrize("wire", ALL)
async def test_a_stored_answer_makes_the_same_bytes(recorded: RecordedModels, wire: Wire) -> None:
    answer = await answer_of(recorded.model(wire, wire.first))
    await second_request(recorded, wire, answer)
    [before] = recorded.provider.bodies[wire.name]
    await second_request(recorded, wire, stored_and_read(answer))
    [after] = recorded.provider.bodies[wire.name]
    assert before == after


@pytest.mark.parametrize("wire", ALL)
async def test_another_provider_gets_no_provider_data(recorded: RecordedModels, wire: Wire) -> None:
    answer = await answer_of(recorded.model(wire, wire.first))
    for other in WIRES.values():
        if other is not wire:
            body = await second_request(recorded, other, answer)
            request = json.dumps(body, ensure_ascii=False)
            assert answer.text in request
            for secret in (SIGNATURE, ENCRYPTED, REDACTED, THOUGHT, "rs_1", "fc_1"):
                assert secret not in request, f"{secret} went to {other.name}"


@pytest.mark.parametrize("wire", ALL)
async def test_after_a_cut_only_finished_blocks_go_back(
    recorded: RecordedModels, wire: Wire
) -> None:
    random = Random(f"cuts of {wire.name}")
    for _ in range(20):
        cut = wire.first[: random.randrange(len(wire.first))]
        answer = await answer_of(recorded.model(wire, cut))
        if not (answer.text or answer.tool_calls):
            assert answer.provider_data is None
            continue
        for block in _blocks(await second_request(recorded, wire, stored_and_read(answer))):
            assert is_finished(block)


def _blocks(value: Any) -> Iterator[JsonObject]:
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from _blocks(each)
    elif isinstance(value, list):
        for each in value:
            yield from _blocks(each)


def is_finished(block: JsonObject) -> bool:
    match block:
        case {"type": "thinking", "signature": signature}:
            return bool(signature == SIGNATURE and block["thinking"] == THOUGHT)
        case {"type": "thinking"}:
            return False
        case {"type": "redacted_thinking"}:
            return bool(block.get("data") == REDACTED)
        case {"type": "reasoning"}:
            return bool(block.get("encrypted_content") == ENCRYPTED)
        case {"type": "reasoning.text"}:
            return bool(block.get("signature") == SIGNATURE)
        case {"reasoning_content": text} | {"reasoning": str(text)}:
            return bool(text == THOUGHT)
        case _:
            return True


async def test_details_go_back_to_their_own_model_only(recorded: RecordedModels) -> None:
    wire = WIRES["openrouter"]
    answer = await answer_of(recorded.model(wire, wire.first))
    request = await second_request(recorded, OTHER, answer)
    assert "reasoning_details" not in wire.answer_in(request)


CONVERSATIONS = ("messages", "contents", "input")


def beginning_and_conversation(body: Any) -> tuple[str, list[str]]:
    """All of a request but its conversation, and each entry of that, as text in the order of the request.

    Anthropic's cache markers move along. They don't count for its cache.
    """
    [key] = [key for key in CONVERSATIONS if key in body]
    text = json.dumps({name: value for name, value in body.items() if name != key})
    return text, [json.dumps(without_markers(entry)) for entry in body[key]]


def without_markers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_markers(each) for key, each in value.items() if key != "cache_control"}
    if isinstance(value, list):
        return [without_markers(each) for each in value]
    return value


@pytest.mark.parametrize("wire", ALL)
async def test_a_request_begins_with_the_one_before_it(
    recorded: RecordedModels, wire: Wire
) -> None:
    answer = await answer_of(recorded.model(wire, wire.first))
    [first] = recorded.provider.requests(wire.name)
    second = await second_request(recorded, wire, stored_and_read(answer))
    (head, begun), (same_head, longer) = map(beginning_and_conversation, (first, second))
    assert head == same_head
    assert longer[: len(begun)] == begun
    assert len(longer) > len(begun)


async def test_anthropic_gets_cache_markers(recorded: RecordedModels) -> None:
    wire = WIRES["anthropic"]
    answer = await answer_of(recorded.model(wire, wire.first))
    body = await second_request(recorded, wire, answer)
    marker = {"type": "ephemeral"}
    for block in (body["tools"][-1], body["system"][-1], body["messages"][-1]["content"][-1]):
        assert {"type": block["cache_control"]["type"]} == marker
