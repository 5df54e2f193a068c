"""Encoded messages of recent requests, bounded in bytes, so that a long history is encoded once.

Messages that followed each other in a request are kept as one text. The next request of their thread takes it
whole. The history of a thread keeps its messages, so a message of an earlier request is found by its identity.
Messages that a provider's wire joins are a group, which is taken whole or not at all.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any, TypeAlias

from msgspec import Struct

from app import telemetry
from app.domain.json_values import JsonObject, compact
from app.domain.threads.messages import Message

_Issuer: TypeAlias = tuple[object, ...]
_Key: TypeAlias = tuple[int, _Issuer]

DEFAULT_BYTES = 16_000_000
MAX_MESSAGE_BYTES = 64_000
"""Larger messages, which have files, are encoded each time."""
BYTES_PER_MESSAGE = 500
"""The bytes that a message takes without its text; approximate."""
_PLACE_OF_ITEMS = "\0items"
"""Stands for the messages in a body. No option has this text: options have no U+0000."""


def encoded_json(value: Any) -> bytes:
    return compact(value).encode("utf-8", "replace")


def items_json(values: Sequence[Any]) -> bytes:
    """The JSON of items, with a comma between two; empty if there are none."""
    return encoded_json(values)[1:-1]


def body_with(body: Mapping[str, Any], name: str, items: Sequence[bytes]) -> bytes:
    """The JSON of a body whose field `name` is a list of these items, which are JSON already."""
    begin, _, end = encoded_json({**body, name: _PLACE_OF_ITEMS}).partition(
        encoded_json(_PLACE_OF_ITEMS)
    )
    return b"".join((begin, b"[", b",".join(filter(None, items)), b"]", end))


class _Text:
    """The JSON of groups of messages that followed each other, with a comma between two."""

    def __init__(self, issuer: _Issuer) -> None:
        self.issuer = issuer
        self.messages: list[Message] = []
        self._json = bytearray()
        self._counts: list[int] = []
        """The messages up to the end of each group."""
        self._ends: list[int] = []
        """The bytes up to the end of each group."""

    @property
    def size(self) -> int:
        return len(self._json) + BYTES_PER_MESSAGE * len(self.messages)

    @property
    def groups(self) -> int:
        return len(self._ends)

    def append(self, group: Sequence[Message], json: bytes) -> None:
        if self._json:
            self._json += b","
        self._json += json
        self.messages += group
        self._counts.append(len(self.messages))
        self._ends.append(len(self._json))

    def begin_of(self, group: int) -> int:
        """The messages before a group."""
        return self._counts[group - 1] if group else 0

    def end_within(self, group: int, count: int) -> int:
        """The group behind those whose messages are all among the first `count` ones of this group and those
        after it."""
        return bisect_right(self._counts, self.begin_of(group) + count)

    def of(self, first: int, end: int) -> bytes:
        begin = self._ends[first - 1] + 1 if first else 0
        return bytes(memoryview(self._json)[begin : self._ends[end - 1]])

    def cut(self, groups: int) -> Sequence[Message]:
        """Keep the first groups only, at least one, and return the messages of the others."""
        others = self.messages[self._counts[groups - 1] :]
        if others:
            del self.messages[self._counts[groups - 1] :], self._json[self._ends[groups - 1] :]
            del self._counts[groups:], self._ends[groups:]
        return others


class EncodedMessages:
    """The texts of the conversations that were used last."""

    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._places: dict[_Key, tuple[_Text, int]] = {}
        """The first message of each group, with its text and its place there."""
        self._recent: OrderedDict[int, _Text] = OrderedDict()
        self.size = 0

    def place_of(self, message: Message, issuer: _Issuer) -> tuple[_Text, int] | None:
        """The text with a group that begins with this message, and the group's place there."""
        # A text keeps its messages, so no other message has their ids.
        place = self._places.get((id(message), issuer))
        if place is not None:
            self._recent.move_to_end(id(place[0]))
        return place

    def add_text(self, text: _Text) -> None:
        self._recent[id(text)] = text

    def add(self, text: _Text, group: Sequence[Message], json: bytes) -> None:
        before = text.size
        text.append(group, json)
        self._places[(id(group[0]), text.issuer)] = (text, text.groups - 1)
        self.size += text.size - before

    def cut(self, text: _Text, groups: int) -> None:
        before = text.size
        self._forget(text.cut(groups), text.issuer)
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


class KnownText(Struct, frozen=True):
    """The JSON of so many messages."""

    text: bytes
    count: int


class EncodedConversation:
    """The messages of one request. What a provider gets back of its own data depends on the issuer.

    New groups are kept behind those that the request has before them. What an earlier request had there is
    dropped.
    """

    def __init__(self, encoded: EncodedMessages, issuer: JsonObject) -> None:
        self._encoded = encoded
        self._issuer = tuple(issuer.items())
        self._text: _Text | None = None
        """Where new groups are added, behind so many others."""
        self._length = 0

    def known(
        self, messages: Sequence[Message], at: int, end: int | None = None
    ) -> KnownText | None:
        """The text of as many groups as are known together, from this message on and before `end`."""
        place = self._encoded.place_of(messages[at], self._issuer)
        if place is None:
            return None
        text, group = place
        same = list(map(is_, messages[at:end], text.messages[text.begin_of(group) :]))
        count = len(same) if all(same) else same.index(False)
        behind = text.end_within(group, count)
        if behind <= group:
            return None
        self._text, self._length = text, behind
        return KnownText(text.of(group, behind), text.begin_of(behind) - text.begin_of(group))

    def add(self, group: Sequence[Message], json: bytes) -> None:
        """Keep a new group with its JSON."""
        if len(json) > MAX_MESSAGE_BYTES * len(group) or not json:
            self.skip()
            return
        if self._text is None:
            self._text = _Text(self._issuer)
            self._encoded.add_text(self._text)
        elif self._length < self._text.groups:
            self._encoded.cut(self._text, self._length)
        self._encoded.add(self._text, group, json)
        self._length += 1

    def skip(self) -> None:
        """A group that isn't kept stands here."""
        self._text, self._length = None, 0

    def close(self) -> None:
        """Call at the end of the request."""
        self._encoded.shrink()
