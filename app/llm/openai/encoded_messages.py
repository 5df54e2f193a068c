"""Encoded messages of recent requests, bounded in bytes, so that a long history is encoded once.

Messages that followed each other in a request are kept as one text. The next request of their thread takes it
whole. The history of a thread keeps its messages, so a message of an earlier request is found by its identity.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from operator import is_
from typing import TypeAlias

from app import telemetry
from app.domain.json_values import JsonObject
from app.domain.threads.messages import Message

_Issuer: TypeAlias = tuple[object, ...]
_Key: TypeAlias = tuple[int, _Issuer]

DEFAULT_BYTES = 16_000_000
MAX_MESSAGE_BYTES = 64_000
"""Larger messages, which have files, are encoded each time."""
BYTES_PER_MESSAGE = 500
"""The bytes that a message takes without its text; approximate."""


class _Text:
    """The JSON of messages that followed each other, with a comma between two."""

    def __init__(self, issuer: _Issuer) -> None:
        self.issuer = issuer
        self.messages: list[Message] = []
        self._json = bytearray()
        self._ends: list[int] = []

    @property
    def size(self) -> int:
        return len(self._json) + BYTES_PER_MESSAGE * len(self.messages)

    def append(self, message: Message, json: bytes) -> None:
        if self.messages:
            self._json += b","
        self._json += json
        self.messages.append(message)
        self._ends.append(len(self._json))

    def of(self, first: int, count: int) -> bytes:
        begin = self._ends[first - 1] + 1 if first else 0
        return bytes(memoryview(self._json)[begin : self._ends[first + count - 1]])

    def cut(self, length: int) -> Sequence[Message]:
        """Keep the first messages only, at least one, and return the others."""
        others = self.messages[length:]
        if others:
            del self.messages[length:], self._ends[length:], self._json[self._ends[length - 1] :]
        return others


class EncodedMessages:
    """The texts of the conversations that were used last."""

    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._places: dict[_Key, tuple[_Text, int]] = {}
        """Each message that is kept, with its text and its place there."""
        self._recent: OrderedDict[int, _Text] = OrderedDict()
        self.size = 0

    def place_of(self, message: Message, issuer: _Issuer) -> tuple[_Text, int] | None:
        """The text that has this message, and its place there."""
        # A text keeps its messages, so no other message has their ids.
        place = self._places.get((id(message), issuer))
        if place is not None:
            self._recent.move_to_end(id(place[0]))
        return place

    def add_text(self, text: _Text) -> None:
        self._recent[id(text)] = text

    def add(self, text: _Text, message: Message, json: bytes) -> None:
        before = text.size
        text.append(message, json)
        self._places[(id(message), text.issuer)] = (text, len(text.messages) - 1)
        self.size += text.size - before

    def cut(self, text: _Text, length: int) -> None:
        before = text.size
        self._forget(text.cut(length), text.issuer)
        self.size += text.size - before

    def shrink(self) -> None:
        """Drop the texts that were not used for longest, until the others fit."""
        while self.size > self._max_bytes:
            _, oldest = self._recent.popitem(last=False)
            self.size -= oldest.size
            self._forget(oldest.messages, oldest.issuer)
        telemetry.encoded_messages_bytes.set(self.size)

    def _forget(self, messages: Sequence[Message], issuer: _Issuer) -> None:
        for message in messages:
            self._places.pop((id(message), issuer), None)


@dataclass(frozen=True, slots=True)
class KnownText:
    """The JSON of so many messages."""

    text: bytes
    count: int


class EncodedConversation:
    """The messages of one request. What a provider gets back of its own data depends on the issuer.

    New messages are kept behind those that the request has before them. What an earlier request had there is
    dropped.
    """

    def __init__(self, encoded: EncodedMessages, issuer: JsonObject) -> None:
        self._encoded = encoded
        self._issuer = tuple(issuer.items())
        self._text: _Text | None = None
        """Where new messages are added, behind so many others."""
        self._length = 0

    def known(self, messages: Sequence[Message], at: int) -> KnownText | None:
        """The text of as many messages as are known together, from this one on."""
        place = self._encoded.place_of(messages[at], self._issuer)
        if place is None:
            return None
        text, first = place
        ours, theirs = messages[at:], text.messages[first:]
        same = list(map(is_, ours, theirs))
        count = len(same) if all(same) else same.index(False)
        self._text, self._length = text, first + count
        return KnownText(text.of(first, count), count)

    def add(self, messages: Sequence[tuple[Message, bytes]]) -> None:
        """Keep new messages with their JSON."""
        for message, json in messages:
            if len(json) > MAX_MESSAGE_BYTES:
                self.skip()
                continue
            if self._text is None:
                self._text = _Text(self._issuer)
                self._encoded.add_text(self._text)
            self._encoded.cut(self._text, self._length)
            self._encoded.add(self._text, message, json)
            self._length += 1

    def skip(self) -> None:
        """A message that isn't kept stands here."""
        self._text, self._length = None, 0

    def close(self) -> None:
        """Call at the end of the request."""
        self._encoded.shrink()
