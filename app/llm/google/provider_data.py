"""Parts of an answer that Google wants back: signatures of thoughts, and parts of its own tools."""

from collections.abc import Mapping, Sequence

from app.domain.ids import CallId
from app.domain.json_values import JsonObject, as_object
from app.domain.threads.messages import Message
from app.domain.threads.provider_data import PartKind, ProviderPart
from app.llm.issued_parts import issued_parts

ADAPTER = "google"
SIGNATURE = "thoughtSignature"
_TOOLS_IN_SDK = {
    "web_search": "GOOGLE_SEARCH_WEB",
    "web_fetch": "URL_CONTEXT",
    "file_search": "FILE_SEARCH",
}
_ID_OF_SDK = "pyd_ai_"
"""The SDK made up these ids. Google doesn't know them."""


def issuer_of(address: str, model: str) -> JsonObject:
    """Who issues the provider data of an answer."""
    return {"adapter": ADAPTER, "provider": ADAPTER, "address": address, "model": model}


def part_of(
    kind: PartKind, text: str, signature: str | None, call_id: CallId | None = None
) -> ProviderPart | None:
    """A part of the answer; None for a thought that isn't wanted back."""
    if kind is PartKind.THINKING and signature is None:
        return None
    return ProviderPart(kind, {} if signature is None else {SIGNATURE: signature}, text, call_id)


def parts_of(message: Message, address: str) -> Sequence[ProviderPart]:
    """The parts of an answer that this server issued."""
    return issued_parts(message, ADAPTER, address, _from_sdk)


def signature_in(part: ProviderPart) -> JsonObject:
    """The field of a part that has its signature, if it has one."""
    return {SIGNATURE: part.data[SIGNATURE]} if SIGNATURE in part.data else {}


def _from_sdk(part: ProviderPart) -> ProviderPart:
    """A part that the SDK's adapter stored."""
    details = part.data.get("provider_details") or {}
    signature = details.get("thought_signature")
    data: JsonObject = {SIGNATURE: signature} if signature else {}
    if part.kind is PartKind.OTHER:
        field = _field_from_sdk(part.data)
        data = {**field, **data} if field else {}
    return ProviderPart(part.kind, data, part.text, part.call_id, part.start, part.end)


def _field_from_sdk(data: JsonObject) -> JsonObject:
    """The field of the API for a part of the SDK; empty if there is none."""
    match data:
        case {"part_kind": "file", "content": {"data": str(text), "media_type": str(type_)}}:
            return {"inlineData": {"mimeType": type_, "data": text}}
        case {"part_kind": "builtin-tool-call", "tool_name": "code_execution", "args": args}:
            return {"executableCode": as_object(args) or {}}
        case {"part_kind": "builtin-tool-return", "tool_name": "code_execution", "content": found}:
            return {"codeExecutionResult": found} if isinstance(found, Mapping) else {}
        case {"part_kind": kind, "tool_name": name, "tool_call_id": str(id_)} if (
            name in _TOOLS_IN_SDK and not id_.startswith(_ID_OF_SDK)
        ):
            tool = {"id": id_, "toolType": _TOOLS_IN_SDK[name]}
            if kind == "builtin-tool-call":
                return {"toolCall": {**tool, "args": as_object(data.get("args")) or {}}}
            content = data.get("content")
            response = content if isinstance(content, Mapping) else {"result": content}
            known = {key: value for key, value in response.items() if key != "sources"}
            return {"toolResponse": {**tool, "response": known}}
        case _:
            return {}
