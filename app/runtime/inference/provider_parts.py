"""What the provider of an answer wants back: collected while the answer streams, over all its attempts."""

from dataclasses import dataclass, field

import structlog

from app.domain.json_values import JsonObject, compact, utf8_size
from app.domain.threads.provider_data import (
    MAX_PROVIDER_DATA_BYTES,
    ProviderData,
    ProviderPart,
    provider_data_of,
)
from app.runtime.ports.models import ProviderParts

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Attempt:
    before: int
    """Characters of the answer's text before this attempt."""
    parts: dict[int, ProviderPart] = field(default_factory=dict)


class CollectedParts:
    """The complete parts of an answer. An attempt that breaks off keeps those that it completed."""

    def __init__(self) -> None:
        self._issuer: JsonObject | None = None
        self._attempts: list[_Attempt] = []
        self._bytes = 0

    def begin_attempt(self, characters_before: int) -> None:
        self._attempts.append(_Attempt(characters_before))

    def add(self, chunk: ProviderParts) -> None:
        parts = self._attempts[-1].parts
        for place, part in chunk.parts.items():
            self._bytes += _size(part) - (_size(parts[place]) if place in parts else 0)
            if self._bytes <= MAX_PROVIDER_DATA_BYTES:
                parts[place] = part
        self._issuer = chunk.issuer

    def clear(self) -> None:
        self._attempts.clear()
        self._issuer, self._bytes = None, 0

    def of_answer(self, text: str) -> ProviderData | None:
        """The provider data of the answer with this text; None if there are none, or too many."""
        if self._issuer is None:
            return None
        if self._bytes > MAX_PROVIDER_DATA_BYTES:
            log.warning("provider_data_too_large", max_bytes=MAX_PROVIDER_DATA_BYTES)
            return None
        attempts = [
            (attempt.before, [attempt.parts[place] for place in sorted(attempt.parts)])
            for attempt in self._attempts
        ]
        return provider_data_of(self._issuer, attempts, text)


def _size(part: ProviderPart) -> int:
    """The bytes that the part takes in the log; approximate."""
    return 100 + utf8_size(part.text) + (utf8_size(compact(part.data)) if part.data else 0)
