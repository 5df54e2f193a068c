"""Requests to Anthropic and Google take the turns of earlier ones as text, and are the same as without."""

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence

import pytest

from app.domain.ids import CallId, MessageId
from app.domain.json_values import JsonObject
from app.domain.structs import replace
from app.domain.threads.messages import (
    Base64Source,
    Media,
    Message,
    MessageRange,
    Role,
    Summary,
    Text,
    ToolCall,
)
from app.domain.threads.provider_data import PartKind, ProviderData, ProviderPart
from app.llm.anthropic import conversation as anthropic_conversation
from app.llm.anthropic.options import parameters_of as anthropic_parameters
from app.llm.anthropic.request import anthropic_request
from app.llm.encoded_messages import BYTES_PER_MESSAGE, MAX_MESSAGE_BYTES, EncodedMessages
from app.llm.encoded_turns import TurnEncoder
from app.llm.google import conversation as google_conversation
from app.llm.google.options import parameters_of as google_parameters
from app.llm.google.request import google_request
from app.runtime.ports.models import ModelRequest
from tests.support.transcripts import ADD, assistant, continued, result, user

HERE = "https://a.test"
LOOK = ToolCall(CallId("c1"), "look", {"b": 1, "a": "ä"})
ADD_CALL = ToolCall(CallId("c2"), "add", {"a": 1})


class Wire(ABC):
    """A provider, with a model whose requests have every form of turn."""

    provider: str
    model: str
    older_model: str
    encoder: type[TurnEncoder]
    signed: JsonObject
    """What the provider wants back with a thought."""

    @abstractmethod
    def body(
        self, messages: Sequence[Message], model: str, address: str, encoded: EncodedMessages | None
    ) -> bytes: ...


class Anthropic(Wire):
    provider, model, older_model = "anthropic", "claude-haiku-5-5", "claude-opus-4-1"
    encoder = anthropic_conversation.AnthropicConversation
    signed: JsonObject = {"signature": "signed"}

    def body(
        self, messages: Sequence[Message], model: str, address: str, encoded: EncodedMessages | None
    ) -> bytes:
        request = ModelRequest(system_prompt="Be kind.", messages=messages, tools=[ADD])
        return anthropic_request(
            request, model, address, anthropic_parameters({}, {}), encoded
        ).content()


class Google(Wire):
    provider, model, older_model = "google", "gemini-3-pro", "gemini-2.5-flash"
    encoder = google_conversation.GoogleConversation
    signed: JsonObject = {"thoughtSignature": "signed"}

    def body(
        self, messages: Sequence[Message], model: str, address: str, encoded: EncodedMessages | None
    ) -> bytes:
        request = ModelRequest(system_prompt="Be kind.", messages=messages, tools=[ADD])
        return google_request(request, model, address, google_parameters({}, {}), encoded)


class Requests:
    """Requests with a cache. Each is compared with one whose turns are encoded all at once."""

    def __init__(self, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wire = wire
        self.cache = EncodedMessages(1_000_000)
        self.encoded: list[Message] = []
        """The messages of the latest request that weren't taken from the cache."""
        self._is_counted = True
        self._monkeypatch = monkeypatch
        encode = wire.encoder.turns

        def counted(
            encoder: TurnEncoder, messages: Sequence[Message], begin: int, end: int
        ) -> list[JsonObject]:
            if self._is_counted:
                self.encoded += messages[begin:end]
            return list(encode(encoder, messages, begin, end))

        monkeypatch.setattr(wire.encoder, "turns", counted)

    def send(
        self, messages: Sequence[Message], *, model: str | None = None, address: str = HERE
    ) -> None:
        name = model or self.wire.model
        with self._monkeypatch.context() as patched:
            patched.setattr(self.wire.encoder, "may_be_last", lambda *_: False)
            self._is_counted = False
            at_once = self.wire.body(messages, name, address, None)
            self._is_counted = True
        self.encoded.clear()
        assert self.wire.body(messages, name, address, self.cache) == at_once


@pytest.fixture(params=[Anthropic(), Google()], ids=["anthropic", "google"])
def requests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Requests:
    return Requests(request.param, monkeypatch)


def turns(count: int) -> list[Message]:
    """A history that begins with a message of the user and ends with one."""
    history = [user("begin")]
    for number in range(count):
        history += [
            assistant(f"{number} ü", LOOK),
            result("c1", f"seen {number}"),
            assistant(f"answer {number}"),
            user(f"go on {number}"),
        ]
    return history


def system(text: str) -> Message:
    return Message(id=MessageId("s"), role=Role.SYSTEM, content=(Text(text),))


def picture(text: str) -> Message:
    image = Media("image", Base64Source("image/png", "aGk="))
    return replace(user(text), content=(Text(text), image, Summary("before", MessageRange(1, 2))))


def seen_picture(call_id: str) -> Message:
    return replace(picture("a picture"), role=Role.TOOL, tool_call_id=CallId(call_id))


def with_thought(wire: Wire, answer: Message, address: str = HERE) -> Message:
    parts = (
        ProviderPart(PartKind.THINKING, wire.signed, "hm"),
        ProviderPart(PartKind.TEXT, {}, start=0, end=len(answer.text)),
    )
    return replace(
        answer, provider_data=ProviderData({"provider": wire.provider, "address": address}, parts)
    )


def test_a_turn_encodes_new_turns_and_the_last_one(requests: Requests) -> None:
    history = turns(40)
    requests.send(history[:-4])
    assert len(requests.encoded) == len(history) - 5
    requests.send(history)
    assert requests.encoded == history[-6:]
    requests.send(history)
    assert requests.encoded == history[-2:]


def test_each_request_of_a_step_encodes_the_last_two_turns(requests: Requests) -> None:
    history = turns(10)
    for end in range(1, len(history) + 1):
        requests.send(history[:end])
        assert len(requests.encoded) <= 4


def test_a_turn_that_goes_on_is_encoded_again(requests: Requests) -> None:
    history = turns(3)
    requests.send(history)
    requests.send([*history[:5], user("more"), *history[5:]])
    requests.send([*history[:5], assistant(""), user("more"), *history[5:]])
    requests.send(history)


def test_a_history_that_lost_its_beginning_is_known(requests: Requests) -> None:
    history = turns(10)
    requests.send(history)
    requests.send([user("a summary"), *history[11:]])
    assert requests.encoded == history[-2:]
    # Its first result has no call.
    requests.send(history[10:])
    requests.send(history[9:])


def test_a_rolled_back_history_is_known_up_to_there(requests: Requests) -> None:
    history = turns(10)
    requests.send(history)
    instead = [assistant("instead"), user("and now")]
    requests.send([*history[:21], *instead])
    assert requests.encoded == instead


def test_another_model_or_address_has_texts_of_its_own(requests: Requests) -> None:
    answers = [with_thought(requests.wire, assistant(f"{number}")) for number in range(3)]
    history = [each for answer in answers for each in (system("note"), user("a"), answer)]
    for _ in range(2):
        requests.send(history)
        requests.send(history, model=requests.wire.older_model)
        requests.send(history, address="https://b.test")
    assert len(requests.encoded) == 1


def test_the_bound_holds_and_the_conversations_used_last_are_kept(requests: Requests) -> None:
    size = 8 * (BYTES_PER_MESSAGE + 300)
    requests.cache = EncodedMessages(2 * size)
    first, second, third = turns(3), turns(3), turns(3)
    for one in (first, second, first, third):
        requests.send(one)
        assert requests.cache.size <= 2 * size
    requests.send(first)
    assert len(requests.encoded) == 2
    requests.send(second)
    assert len(requests.encoded) == len(second) - 1


def test_large_turns_are_not_kept(requests: Requests) -> None:
    large = assistant("x" * (2 * MAX_MESSAGE_BYTES))
    history = [*turns(2), large, *turns(2)]
    requests.send(history)
    requests.send(history)
    assert large in requests.encoded
    assert requests.cache.size < MAX_MESSAGE_BYTES


def test_an_answer_without_a_place_for_a_marker_may_be_the_last_message(requests: Requests) -> None:
    thought = with_thought(requests.wire, assistant(""))
    for history in (turns(3), [], [user("begin")]):
        requests.send([*history[:-1], thought])
        requests.send([*history, thought])


@pytest.mark.parametrize("seed", range(12))
def test_any_order_of_messages_is_encoded_as_without_a_cache(requests: Requests, seed: int) -> None:
    chance = random.Random(seed)
    max_bytes = chance.choice([4_000, 20_000, 1_000_000])
    requests.cache = EncodedMessages(max_bytes)
    wire = requests.wire
    pool = [
        *(user(f"{number} ü" * chance.randint(1, 9)) for number in range(8)),
        *(assistant(f"answer {number}") for number in range(8)),
        *(assistant("calls", LOOK, ADD_CALL), assistant("", LOOK), assistant("", ADD_CALL)),
        *(result("c1", "one"), result("c2", "two"), result("c3", "of an unknown call")),
        *(seen_picture("c1"), seen_picture("c2"), picture("look at this"), user("")),
        *(assistant(""), assistant("  "), system("a note"), system("another note")),
        *(with_thought(wire, assistant("thought")), with_thought(wire, assistant(""))),
        with_thought(wire, assistant("elsewhere"), "https://b.test"),
    ]
    thread: list[Message] = []
    for _ in range(150):
        thread = continued(thread, pool, chance)
        requests.send(
            thread,
            model=chance.choice([wire.model, wire.model, wire.older_model]),
            address=chance.choice([HERE, HERE, "https://b.test"]),
        )
        assert requests.cache.size <= max_bytes
