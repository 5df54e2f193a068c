"""Parts of an answer that Anthropic wants back: signed and redacted thoughts, citations, and blocks of its own
tools."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.domain.ids import CallId
from app.domain.json_values import JsonObject
from app.domain.threads.messages import Message
from app.domain.threads.provider_data import PartKind, ProviderData, ProviderPart
from app.llm.issued_parts import issued_parts

ADAPTER = "anthropic"
_TRANSFORMATIONS = "input_transformations"
_SIGNATURE, _REDACTED, _CITATIONS, _CALLER = "signature", "redacted", "citations", "caller"
_SENT_BACK = "web_search_result_location"
"""Citations of documents name a place in their request, which changes. So they aren't sent back."""


def issuer_of(address: str, model: str, transformations: Sequence[Any] = ()) -> JsonObject:
    """Who issues the provider data of an answer, and which thoughts of its request the provider left out."""
    issuer = {"adapter": ADAPTER, "provider": ADAPTER, "address": address, "model": model}
    return {**issuer, _TRANSFORMATIONS: transformations} if transformations else issuer


def part_of(block: Mapping[str, Any], call_id: CallId | None) -> ProviderPart | None:
    """The part of a complete block; None for a thought that can't be sent back."""
    match block["type"]:
        case "text":
            citations = block.get("citations")
            data = {_CITATIONS: citations} if citations else {}
            return ProviderPart(PartKind.TEXT, data, block["text"])
        case "thinking":
            if not block.get("signature"):
                return None
            data = {_SIGNATURE: block["signature"]}
            return ProviderPart(PartKind.THINKING, data, block["thinking"])
        case "redacted_thinking":
            return ProviderPart(PartKind.THINKING, {_REDACTED: block["data"]})
        case "tool_use":
            caller = block.get("caller") or {}
            is_direct = caller.get("type", "direct") == "direct"
            return ProviderPart(PartKind.CALL, {} if is_direct else {_CALLER: caller}, "", call_id)
        case _:
            return ProviderPart(PartKind.OTHER, dict(block))


def parts_of(message: Message, address: str) -> Sequence[ProviderPart]:
    """The parts of an answer that this server issued."""
    return issued_parts(message, ADAPTER, address, _from_sdk)


def _from_sdk(part: ProviderPart) -> ProviderPart:
    """A part that the SDK's adapter stored."""
    known: dict[str, Any] = {}
    signature = part.data.get("signature")
    if part.kind is PartKind.THINKING and signature:
        is_redacted = part.data.get("id") == "redacted_thinking"
        known = {_REDACTED if is_redacted else _SIGNATURE: signature}
    elif part.kind is PartKind.TEXT:
        details = part.data.get("provider_details") or {}
        known = {_CITATIONS: found} if (found := details.get("citations")) else {}
    return ProviderPart(part.kind, known, part.text, part.call_id, part.start, part.end)


def thought_block(part: ProviderPart) -> dict[str, Any] | None:
    """The block of a thought; None if it has no signature."""
    if _REDACTED in part.data:
        return {"type": "redacted_thinking", "data": part.data[_REDACTED]}
    if _SIGNATURE in part.data:
        signature = part.data[_SIGNATURE]
        return {"type": "thinking", "thinking": part.text, "signature": signature}
    return None


def citations_of(part: ProviderPart) -> list[Any]:
    """The citations of a text that go back."""
    return [each for each in part.data.get(_CITATIONS, ()) if each.get("type") == _SENT_BACK]


def caller_of(part: ProviderPart) -> JsonObject:
    """The field of a call that one of the provider's own tools made."""
    return {_CALLER: part.data[_CALLER]} if _CALLER in part.data else {}


def drops_thoughts(data: ProviderData | None) -> bool:
    """Whether the provider left out thoughts because the conversation before them had changed."""
    transformations = () if data is None else data.issuer.get(_TRANSFORMATIONS) or ()
    return any(
        each.get("type") == "thinking_dropped" and each.get("reason") == "prefix_binding_mismatch"
        for each in transformations
    )
