"""Provider data of pydantic-ai's parts: signatures, encrypted reasoning, ids, and parts that only their
provider understands."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.messages import Citation as SdkCitation
from pydantic_ai.messages import (
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.models import Model, StreamedResponse
from pydantic_core import to_jsonable_python

from app.domain.ids import CallId
from app.domain.json_values import JsonObject, without_none
from app.domain.threads.citations import Citation
from app.domain.threads.media_placeholders import text_with_placeholders
from app.domain.threads.messages import Message, ToolCall
from app.domain.threads.provider_data import PartKind, ProviderData, ProviderPart
from app.llm.openai.tool_call_assembly import ToolCallAssembly
from app.llm.pydantic_ai.citations import citations_of
from app.runtime.ports.models import Citations, ProviderParts

_ADAPTER = "pydantic-ai"
_PART: TypeAdapter[ModelResponsePart] = TypeAdapter(ModelResponsePart)
_FIELD_IDS = frozenset({"reasoning_content", "reasoning"})
"""Ids that the SDK gives to thoughts that came in a field of this name."""
_TAGGED = "content"
"""The id that the SDK gives to thoughts between tags in a text. No provider wants them back."""
_CITATIONS = "citations"
_CITED: TypeAdapter[list[SdkCitation]] = TypeAdapter(list[SdkCitation])
_DROPPED_THINKING = "input_transformations"
"""The detail of an answer that says which thoughts the provider has dropped. The SDK reads it again."""


@dataclass(slots=True)
class StreamedParts:
    """Which parts of an answer were handed to the runtime. Later pieces of a stream may change them."""

    model: str
    calls: ToolCallAssembly
    _sent: dict[int, ProviderPart] = field(default_factory=dict)
    _cited: tuple[Citation, ...] = ()

    def complete(self, response: StreamedResponse, *, is_whole: bool) -> list[ProviderParts]:
        """The parts that are complete and weren't sent before. While the answer streams, its last part isn't."""
        answer = response.get()
        parts = answer.parts if is_whole else answer.parts[:-1]
        if _has_unfinished_thoughts(parts):
            return []
        found = {
            place: part
            for place, raw in enumerate(parts)
            if (part := _provider_part(raw, self.calls.id_at(place))) is not None
        }
        if not any(part.data for part in found.values()):
            return []
        new = {place: part for place, part in found.items() if self._sent.get(place) != part}
        self._sent |= new
        return [ProviderParts(_issuer(answer, self.model), new)] if new else []

    def citations(self, response: StreamedResponse) -> list[Citations]:
        """The citations of the answer so far, if there are new ones."""
        found = citations_of(response.get().parts)
        if found == self._cited:
            return []
        self._cited = found
        return [Citations(found)]


def _has_unfinished_thoughts(parts: Sequence[ModelResponsePart]) -> bool:
    """Whether a reasoning item has no encrypted content yet. It comes with the item's end, after its texts."""
    thoughts = [part for part in parts if isinstance(part, ThinkingPart)]
    signed = {part.id for part in thoughts if part.signature or part.provider_details}
    return any(
        part.id is not None and part.id not in (*_FIELD_IDS, _TAGGED) and part.id not in signed
        for part in thoughts
    )


def _issuer(answer: ModelResponse, model: str) -> JsonObject:
    details = (answer.provider_details or {}).get(_DROPPED_THINKING)
    return without_none(
        {
            "adapter": _ADAPTER,
            "provider": answer.provider_name,
            "address": answer.provider_url,
            "system": answer.canonical_system,
            "model": model,
            _DROPPED_THINKING: to_jsonable_python(details),
        }
    )


def _provider_part(part: ModelResponsePart, call_id: CallId | None) -> ProviderPart | None:
    """The part with what belongs to its provider; None for a thought that can't be sent back."""
    match part:
        case TextPart():
            return ProviderPart(PartKind.TEXT, _data(part), part.content)
        case ThinkingPart():
            # Without a signature or an id a thought is unfinished, or its provider wants none back.
            data = _data(part)
            is_wanted = data and part.id != _TAGGED
            return ProviderPart(PartKind.THINKING, data, part.content) if is_wanted else None
        case ToolCallPart():
            return ProviderPart(PartKind.CALL, _data(part), call_id=call_id)
        case _:
            return ProviderPart(PartKind.OTHER, _PART.dump_python(part, mode="json"))


def _data(part: TextPart | ThinkingPart | ToolCallPart) -> JsonObject:
    data = {
        "id": part.id,
        "signature": part.signature if isinstance(part, ThinkingPart) else None,
        "provider_details": to_jsonable_python(part.provider_details),
        _CITATIONS: _CITED.dump_python(part.citations, mode="json")
        if isinstance(part, TextPart) and part.citations
        else None,
    }
    kept = {key: value for key, value in data.items() if value}
    return {**kept, "provider_name": part.provider_name} if kept else {}


def is_readable(data: ProviderData) -> bool:
    """Whether this adapter has stored the data."""
    return data.issuer.get("adapter") == _ADAPTER


def answer_with_data(
    message: Message,
    data: ProviderData,
    model: Model,
    call_part: Callable[[ToolCall], ToolCallPart],
) -> ModelResponse:
    """The answer in the order of its parts. Of the data it has those that this model's provider accepts."""
    issuer = data.issuer
    dropped = issuer.get(_DROPPED_THINKING)
    response = ModelResponse(
        parts=[],
        model_name=issuer["model"],
        provider_name=issuer.get("provider"),
        provider_url=issuer.get("address"),
        canonical_system=issuer.get("system"),
        provider_details=None if dropped is None else {_DROPPED_THINKING: dropped},
    )
    calls = {call.id: call_part(call) for call in message.tool_calls}
    text, at = text_with_placeholders(message.content), 0
    parts: list[ModelResponsePart] = []
    for part in data.parts:
        if text[at : part.start]:
            parts.append(TextPart(text[at : part.start]))
        at = max(at, part.end)
        plain = _plain_part(part, text, calls)
        with_data = _part_with_data(part, plain)
        if with_data is not None and model.accepts_stateless_artifacts(response, with_data):
            parts.append(with_data)
        elif plain is not None:
            parts.append(plain)
    if text[at:]:
        parts.append(TextPart(text[at:]))
    return replace(response, parts=[*parts, *calls.values()])


def _plain_part(
    part: ProviderPart, text: str, calls: dict[CallId, ToolCallPart]
) -> TextPart | ToolCallPart | None:
    """The part without its data. Thoughts have none."""
    match part.kind:
        case PartKind.TEXT if piece := text[part.start : part.end]:
            return TextPart(piece)
        case PartKind.CALL if part.call_id is not None:
            # A call that the message hasn't was dropped.
            return calls.pop(part.call_id, None)
        case _:
            return None


def _part_with_data(
    part: ProviderPart, plain: TextPart | ToolCallPart | None
) -> ModelResponsePart | None:
    if not part.data:
        return None
    match part.kind:
        case PartKind.THINKING:
            return ThinkingPart(part.text, **part.data)
        case PartKind.TEXT:
            cited = part.data.get(_CITATIONS)
            known = {key: value for key, value in part.data.items() if key != _CITATIONS}
            citations = None if cited is None else _CITED.validate_python(cited)
            text = plain.content if isinstance(plain, TextPart) else ""
            return TextPart(text, citations=citations, **known)
        case PartKind.CALL:
            return None if plain is None else replace(plain, **part.data)
        case PartKind.OTHER:
            return _other_part(part.data)
        case _:
            assert_never(part.kind)


def _other_part(data: JsonObject) -> ModelResponsePart | None:
    try:
        return _PART.validate_python(data)
    except ValidationError:  # of another version of the SDK
        return None
