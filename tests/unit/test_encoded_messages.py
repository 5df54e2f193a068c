"""Requests take the messages of earlier ones as text, and are the same as without."""

import json
import random
from collections.abc import Sequence

import pytest

from app.domain.ids import CallId, MessageId
from app.domain.json_values import JsonObject
from app.domain.structs import replace
from app.domain.threads.messages import Base64Source, Media, Message, Role, Text, ToolCall
from app.llm.encoded_messages import BYTES_PER_MESSAGE, MAX_MESSAGE_BYTES, EncodedMessages
from app.llm.openai import request as openai_request
from app.llm.openai.request import request_body
from app.runtime.ports.models import ModelRequest
from tests.support.transcripts import continued

HERE: JsonObject = {"server": "a", "model": "m"}


def message(text: str, role: Role = Role.USER) -> Message:
    return Message(id=MessageId("the same id"), role=role, content=(Text(text),))


def result(text: str, *, image: bool = False) -> Message:
    content = (Text(text), Media("image", Base64Source("image/png", "aGk=")))
    return replace(
        message(text, Role.TOOL), content=content[: 1 + image], tool_call_id=CallId("call")
    )


class Requests:
    """Requests with a cache. Each is compared with the same one without."""

    def __init__(self, max_bytes: int = 1_000_000) -> None:
        self.cache = EncodedMessages(max_bytes)
        self.encoded: list[str] = []

    def send(self, messages: Sequence[Message], issuer: JsonObject = HERE) -> None:
        request = ModelRequest(system_prompt="", messages=messages)
        without = request_body(request, "m", {}, issuer=issuer)
        self.encoded.clear()
        assert request_body(request, "m", {}, issuer=issuer, encoded=self.cache) == without


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    requests = Requests()
    encode = openai_request._message

    def counted(message: Message, issuer: JsonObject) -> object:
        requests.encoded.append(message.text)
        return encode(message, issuer)

    monkeypatch.setattr(openai_request, "_message", counted)
    return requests


def test_a_turn_encodes_new_messages_only(requests: Requests) -> None:
    history = [message(f"{number} ä") for number in range(50)]
    for known, end in ((0, 10), (10, 11), (11, 30), (30, 50), (50, 50)):
        requests.send(history[:end])
        assert requests.encoded == [each.text for each in history[known:end]]


def test_messages_of_one_request_only_stand_before_and_after_the_known_ones(
    requests: Requests,
) -> None:
    history = [message(f"{number}") for number in range(20)]
    for turn in range(1, 11):
        note = message(f"note {turn}", Role.SYSTEM)
        requests.send([note, *history[: 2 * turn], replace(note)])
        assert requests.encoded == [note.text, *(str(2 * turn - 2 + n) for n in (0, 1)), note.text]


def test_a_history_that_lost_its_beginning_is_known(requests: Requests) -> None:
    history = [message(f"{number}") for number in range(20)]
    requests.send(history)
    requests.send([message("a summary"), *history[7:], message("new")])
    assert requests.encoded == ["a summary", "new"]


def test_a_changed_copy_with_the_same_id_is_another_message(requests: Requests) -> None:
    hello = message("hello")
    changed = replace(hello, content=(Text("changed"),))
    for one in (hello, changed, hello, changed):
        requests.send([one, message("more")])


def test_a_message_that_is_no_longer_used_keeps_its_identity(requests: Requests) -> None:
    """Python gives the id of a deleted object to a new one. The cache keeps the message, so it isn't deleted."""
    for number in range(1_000):
        requests.send([message(f"text {number}")])
        assert requests.encoded == [f"text {number}"]


def test_issuers_have_texts_of_their_own(requests: Requests) -> None:
    hello = message("hello")
    for issuer in (HERE, {**HERE, "model": "other"}):
        requests.send([hello], issuer)
        assert requests.encoded == ["hello"]


def test_the_conversations_used_last_are_kept(requests: Requests) -> None:
    size = BYTES_PER_MESSAGE + 200
    requests.cache = EncodedMessages(2 * size)
    first, second, third = (message(f"{number}" * 100) for number in range(3))
    for one in (first, second, first, third):
        requests.send([one])
        assert requests.cache.size <= 2 * size
    requests.send([first])
    assert requests.encoded == []
    requests.send([second])
    assert len(requests.encoded) == 1


def test_a_cache_without_bytes_keeps_nothing(requests: Requests) -> None:
    requests.cache = EncodedMessages(0)
    hello = message("hello")
    for _ in range(2):
        requests.send([hello])
        assert (requests.encoded, requests.cache.size) == (["hello"], 0)


def test_large_messages_are_not_kept_and_those_around_them_are(requests: Requests) -> None:
    large = message("x" * (MAX_MESSAGE_BYTES + 1))
    history = [message("before"), large, message("after")]
    requests.send(history)
    requests.send(history)
    assert requests.encoded == [large.text]
    assert requests.cache.size < MAX_MESSAGE_BYTES


def test_media_of_results_stay_behind_all_results_of_their_message(requests: Requests) -> None:
    call = replace(message("", Role.ASSISTANT), tool_calls=(ToolCall(CallId("call"), "look", {}),))
    history = [call, result("a", image=True), result("b"), message("next"), message("more")]
    for end in (2, 3, 4, 5, 5):
        requests.send(history[:end])
    assert requests.encoded == ["a", "b"]


@pytest.mark.parametrize("seed", range(6))
def test_any_order_of_messages_is_encoded_as_without_a_cache(requests: Requests, seed: int) -> None:
    chance = random.Random(seed)
    max_bytes = chance.choice([4_000, 20_000, 1_000_000])
    requests.cache = EncodedMessages(max_bytes)
    kinds = [message, lambda text: message(text, Role.ASSISTANT), result]
    pool = [chance.choice(kinds)(f"{number} ü" * chance.randint(1, 9)) for number in range(30)]
    pool += [result(f"image {number}", image=True) for number in range(3)]
    thread: list[Message] = []
    for _ in range(150):
        thread = continued(thread, pool, chance)
        requests.send(thread, chance.choice([HERE, HERE, {}]))
        assert requests.cache.size <= max_bytes


def test_messages_stand_between_the_options_of_a_request() -> None:
    request = ModelRequest(system_prompt="Be kind.", messages=[message('"[]", \0'), message("b")])
    body = json.loads(request_body(request, "m", {"temperature": 1}))
    assert list(body) == ["temperature", "model", "messages", "stream", "stream_options"]
    assert body["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": '"[]", \0'},
        {"role": "user", "content": "b"},
    ]
