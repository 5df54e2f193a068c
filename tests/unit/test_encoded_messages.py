"""A message of a history is encoded once, and never mixed up with another one."""

import json
from dataclasses import replace

from app.domain.ids import MessageId
from app.domain.json_values import JsonObject
from app.domain.threads.messages import Message, Role, Text
from app.llm.openai.encoded_messages import MAX_MESSAGE_BYTES, EncodedMessages
from app.llm.openai.request import request_body
from app.runtime.ports.models import ModelRequest

HERE: JsonObject = {"server": "a", "model": "m"}


def message(text: str) -> Message:
    return Message(id=MessageId("the same id"), role=Role.USER, content=(Text(text),))


class Encoder:
    def __init__(self) -> None:
        self.encoded: list[str] = []

    def __call__(self, message: Message, issuer: JsonObject) -> str:
        self.encoded.append(message.text)
        return message.text


def test_a_message_is_encoded_once() -> None:
    known, encoder, hello = EncodedMessages(), Encoder(), message("hello")
    assert [known.get(hello, HERE, encoder) for _ in range(3)] == ["hello"] * 3
    assert encoder.encoded == ["hello"]


def test_a_changed_copy_with_the_same_id_is_another_message() -> None:
    known, encoder, hello = EncodedMessages(), Encoder(), message("hello")
    changed = replace(hello, content=(Text("changed"),))
    assert [known.get(one, HERE, encoder) for one in (hello, changed, hello)] == [
        "hello",
        "changed",
        "hello",
    ]


def test_a_message_that_is_no_longer_used_keeps_its_identity() -> None:
    """Python gives the id of a deleted object to a new one. The cache keeps the message, so it isn't deleted."""
    known, encoder = EncodedMessages(), Encoder()
    texts = [f"text {number}" for number in range(1_000)]
    assert [known.get(message(text), HERE, encoder) for text in texts] == texts


def test_the_oldest_messages_leave_the_cache() -> None:
    known, encoder = EncodedMessages(max_bytes=1_000), Encoder()
    used = [message(f"{number}" * 100) for number in range(4)]
    for one in used:
        known.get(one, HERE, encoder)
        assert known.size <= 1_000
    known.get(used[-1], HERE, encoder)
    assert len(encoder.encoded) == 4
    known.get(used[0], HERE, encoder)
    assert len(encoder.encoded) == 5


def test_a_large_message_is_not_kept() -> None:
    known, encoder, large = EncodedMessages(), Encoder(), message("x" * (MAX_MESSAGE_BYTES + 1))
    for _ in range(2):
        known.get(large, HERE, encoder)
    assert (len(encoder.encoded), known.size) == (2, 0)


def test_messages_stand_between_the_options_of_a_request() -> None:
    request = ModelRequest(system_prompt="Be kind.", messages=[message('"[]", \0'), message("b")])
    body = json.loads(request_body(request, "m", {"temperature": 1}))
    assert list(body) == ["temperature", "model", "messages", "stream", "stream_options"]
    assert body["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": '"[]", \0'},
        {"role": "user", "content": "b"},
    ]
