"""Encoded messages of recent requests, bounded in bytes, so that a long history is encoded once.

The history of a thread keeps its messages, so a message of an earlier request is found by its identity.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeAlias

from app.domain.json_values import JsonObject
from app.domain.threads.messages import Message

Key: TypeAlias = tuple[int, tuple[object, ...]]

MAX_BYTES = 16_000_000
MAX_MESSAGE_BYTES = 64_000
"""Larger messages, which have files, are encoded each time."""
_BYTES_PER_MESSAGE = 300
"""The bytes of an entry without its text; approximate."""


class EncodedMessages:
    """The JSON of messages. What a provider gets back of its own data depends on the issuer."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._known: OrderedDict[Key, tuple[Message, str]] = OrderedDict()
        self.size = 0

    def get(
        self, message: Message, issuer: JsonObject, encode: Callable[[Message, JsonObject], str]
    ) -> str:
        """The JSON of a message. Every caller passes the same function."""
        of_issuer = () if message.provider_data is None else tuple(issuer.items())
        key = (id(message), of_issuer)
        found = self._known.get(key)
        # An entry keeps its message, so no other message has its id.
        if found is not None:
            self._known.move_to_end(key)
            return found[1]
        text = encode(message, issuer)
        if len(text) <= MAX_MESSAGE_BYTES:
            self._known[key] = (message, text)
            self.size += _BYTES_PER_MESSAGE + len(text)
            while self.size > self._max_bytes:
                _, (_, oldest) = self._known.popitem(last=False)
                self.size -= _BYTES_PER_MESSAGE + len(oldest)
        return text
