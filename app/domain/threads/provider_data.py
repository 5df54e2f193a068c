"""Provider data: what a provider wants back with its answer, such as signatures and encrypted reasoning.

It is opaque. The log keeps it byte for byte beside the message, and only the adapter that stored it reads it.
"""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct

from app.domain.ids import CallId
from app.domain.json_values import JsonObject, storable_text
from app.domain.structs import replace

MAX_PROVIDER_DATA_BYTES = 256_000
"""For one message. Larger data are dropped."""


class PartKind(StrEnum):
    TEXT = "text"
    """A piece of the message's text."""
    THINKING = "thinking"
    CALL = "call"
    OTHER = "other"
    """A part that only its provider understands."""


class ProviderPart(Struct, frozen=True):
    """One part of an answer, in the provider's order.

    `data` is what the provider wants back with it. `text` is the part's own text. The log has that of texts
    already, so it keeps it for thoughts only.
    """

    kind: PartKind
    data: JsonObject
    text: str = ""
    call_id: CallId | None = None
    start: int = 0
    """Characters of the message's text before this part."""
    end: int = 0
    """Where a text ends. For other parts it is `start`."""


class ProviderData(Struct, frozen=True):
    """The parts of one answer. `issuer` names the provider, its address and its model."""

    issuer: JsonObject
    parts: tuple[ProviderPart, ...]


def provider_data_of(
    issuer: JsonObject, attempts: Sequence[tuple[int, Sequence[ProviderPart]]], text: str
) -> ProviderData | None:
    """The provider data of an answer, or None if nothing is to be sent back.

    Each attempt has the length of the text before it and its parts. A part whose text can't be stored as it is
    loses its data, because a signature covers the exact text.
    """
    if len(storable_text(text)) != len(text):
        return None
    parts: list[ProviderPart] = []
    for before, of_attempt in attempts:
        at = before
        for part in of_attempt:
            end = min(at + len(part.text), len(text)) if part.kind is PartKind.TEXT else at
            is_exact = storable_text(part.text) == part.text
            if part.kind is PartKind.TEXT:
                data = part.data if is_exact and end - at == len(part.text) else {}
                parts.append(replace(part, data=data, text="", start=at, end=end))
            elif is_exact:
                parts.append(replace(part, start=at, end=at))
            at = end
    has_data = any(part.data for part in parts)
    return ProviderData(issuer, tuple(parts)) if has_data else None


def provider_data_to_text(data: ProviderData) -> str:
    """JSON in ASCII. It is stored as a string, so that Postgres changes neither numbers nor the order of keys."""
    return json.dumps(
        {"issuer": data.issuer, "parts": [part_to_json(part) for part in data.parts]},
        separators=(",", ":"),
    )


def provider_data_from_text(text: str) -> ProviderData:
    raw = json.loads(text)
    return ProviderData(raw["issuer"], tuple(_part_from_json(part) for part in raw["parts"]))


def part_to_json(part: ProviderPart) -> dict[str, Any]:
    body: dict[str, Any] = {"type": part.kind.value, "start": part.start, "end": part.end}
    if part.text:
        body["text"] = part.text
    if part.call_id is not None:
        body["tool_call_id"] = part.call_id
    if part.data:
        body["data"] = part.data
    return body


def _part_from_json(raw: Mapping[str, Any]) -> ProviderPart:
    return ProviderPart(
        PartKind(raw["type"]),
        raw.get("data", {}),
        raw.get("text", ""),
        raw.get("tool_call_id"),
        raw["start"],
        raw["end"],
    )
