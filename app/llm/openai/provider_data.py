"""Reasoning that OpenAI-compatible servers want back: read from a stream, and written into a request.

DeepSeek, Moonshot, vLLM and others want `reasoning_content` or `reasoning` back on messages with calls,
OpenRouter its `reasoning_details`, and Gemini the `extra_content` of a call.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from app.domain.ids import CallId
from app.domain.json_values import JsonObject
from app.domain.threads.messages import Message
from app.domain.threads.provider_data import PartKind, ProviderPart
from app.runtime.ports.models import ProviderParts

ADAPTER = "openai"
DETAILS = "reasoning_details"
EXTRA = "extra_content"
_TEXT_FIELD = "field"
_TEXT_FIELDS = ("reasoning_content", "reasoning")
_STREAMED_FIELDS = ("text", "summary")
"""Fields of a detail that servers stream in pieces."""


def issuer_of(address: str, model: str) -> JsonObject:
    """Who issues the provider data of a model's answers."""
    return {"adapter": ADAPTER, "address": address, "model": model}


class StreamedReasoning:
    """The reasoning of one answer, while it streams. It is complete as far as a call follows it."""

    def __init__(self) -> None:
        self._field = ""
        self._texts: list[str] = []
        self._details: list[_Detail] = []
        self._calls: dict[Hashable, JsonObject] = {}
        """By the place of the call."""
        self._complete_texts = self._complete_details = 0

    def add_text(self, delta: Mapping[str, Any], text: str) -> None:
        if not (self._field and self._texts):
            self._field = next(name for name in _TEXT_FIELDS if delta.get(name) == text)
        if text:
            self._texts.append(text)

    def add_details(self, details: Any) -> None:
        """Add details. A piece that continues the last detail is joined with it."""
        for detail in details:
            if not isinstance(detail, dict):
                raise TypeError(f"a reasoning detail is an object, not {type(detail).__name__}")
            is_open = len(self._details) > self._complete_details
            if is_open and self._details[-1].is_continued_by(detail):
                self._details[-1].extend(detail)
            else:
                self._details.append(_Detail(detail))

    def call_opened(self) -> None:
        self._complete_texts, self._complete_details = len(self._texts), len(self._details)

    def add_call_data(self, at: Hashable, extra: Any) -> None:
        self._calls[at] = extra

    def parts(
        self,
        issuer: JsonObject,
        id_at: Callable[[Hashable], CallId | None],
        *,
        has_calls: bool,
        is_whole: bool,
    ) -> ProviderParts | None:
        """What the server wants back; None if nothing. Reasoning as text goes back with calls only.

        `id_at` has the id of the call at a place.
        """
        texts, details = self._texts, self._details
        if not is_whole:
            texts, details = texts[: self._complete_texts], details[: self._complete_details]
        data: dict[str, Any] = {}
        if self._field and has_calls:
            data[_TEXT_FIELD] = self._field
        if details:
            data[DETAILS] = [detail.to_json() for detail in details]
        parts: list[ProviderPart] = []
        if data:
            text = "".join(texts) if _TEXT_FIELD in data else ""
            parts.append(ProviderPart(PartKind.THINKING, data, text))
        parts += [
            ProviderPart(PartKind.CALL, {EXTRA: extra}, call_id=id_)
            for at, extra in self._calls.items()
            if (id_ := id_at(at)) is not None
        ]
        return ProviderParts(issuer, dict(enumerate(parts))) if parts else None


class _Detail:
    """One of `reasoning_details`, put together from its pieces."""

    def __init__(self, first: Mapping[str, Any]) -> None:
        self._fields = dict(first)
        self._pieces: dict[str, list[str]] = {
            key: [text] for key in _STREAMED_FIELDS if isinstance(text := first.get(key), str)
        }

    def is_continued_by(self, piece: Mapping[str, Any]) -> bool:
        """Whether a piece belongs to this detail. Encrypted details are never streamed in pieces."""
        if piece.get("index") is None or piece.get("type") == "reasoning.encrypted":
            return False
        known = self._fields
        is_same = all(piece.get(key) in (None, known.get(key)) for key in ("type", "index", "id"))
        return is_same and not known.get("signature")

    def extend(self, piece: Mapping[str, Any]) -> None:
        for key, value in piece.items():
            if key in self._pieces and isinstance(value, str):
                self._pieces[key].append(value)
            elif value is not None:
                self._fields[key] = value

    def to_json(self) -> dict[str, Any]:
        return self._fields | {key: "".join(pieces) for key, pieces in self._pieces.items()}


def fields_of(message: Message, issuer: JsonObject) -> dict[str, Any]:
    """The fields of an answer that go back to the server. Details go back to their own model only."""
    data = message.provider_data
    if data is None or not _is_from_same_server(data.issuer, issuer):
        return {}
    fields: dict[str, Any] = {}
    for part in data.parts:
        if part.kind is PartKind.THINKING:
            if (name := part.data.get(_TEXT_FIELD)) and message.tool_calls:
                fields[name] = fields.get(name, "") + part.text
            if DETAILS in part.data and data.issuer["model"] == issuer["model"]:
                fields[DETAILS] = [*fields.get(DETAILS, ()), *part.data[DETAILS]]
    return fields


def call_fields_of(message: Message, issuer: JsonObject) -> Mapping[CallId, JsonObject]:
    """The fields of calls that go back to the server."""
    data = message.provider_data
    if data is None or not _is_from_same_server(data.issuer, issuer):
        return {}
    return {part.call_id: part.data for part in data.parts if part.call_id is not None}


def _is_from_same_server(issued_by: JsonObject, sent_to: JsonObject) -> bool:
    return all(issued_by.get(key) == sent_to.get(key) for key in ("adapter", "address"))
