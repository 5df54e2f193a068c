"""Converts the library's results to those of `app/tools/mcp/client`."""

import json
from collections.abc import Mapping
from typing import Any, assert_never

import mcp_types as wire

from app.domain.json_values import Json, JsonObject, as_object
from app.tools.mcp.client import (
    InputRequired,
    Question,
    QuestionReply,
    ServerAnswer,
    ServerFile,
    TaskHandle,
)

_SAMPLING = "it asks for an answer of a model, which is not offered to servers"


def described(tool: wire.Tool) -> JsonObject:
    """What the server says about a tool, as JSON."""
    return tool.model_dump(
        mode="json",
        by_alias=True,
        exclude_none=True,
        include={
            "name",
            "title",
            "description",
            "input_schema",
            "output_schema",
            "annotations",
            "execution",
        },
    )


def answer_of(result: wire.CallToolResult) -> ServerAnswer:
    texts: list[str] = []
    parts: list[JsonObject] = []
    files: list[ServerFile] = []
    for block in result.content:
        if (file := _file(block, len(parts))) is not None:
            files.append(file)
        text, part = _content(block)
        texts.append(text)
        if part is not None:
            parts.append(part)
    text, data = "\n".join(texts), result.structured_content
    if data is not None and not parts and _says_the_same(text, data):
        text = ""
    return ServerAnswer(text=text, data=data, is_error=result.is_error, parts=parts, files=files)


def _says_the_same(text: str, data: Any) -> bool:
    """Whether the text is the data once more, for older clients."""
    try:
        return bool(json.loads(text) == data)
    except (ValueError, RecursionError):
        return False


def _content(block: wire.ContentBlock) -> tuple[str, JsonObject | None]:
    """The text for the model, and a description of content that isn't text."""
    match block:
        case wire.TextContent():
            return block.text, None
        case wire.ImageContent() | wire.AudioContent():
            size = len(block.data) * 3 // 4
            part = {"type": block.type, "media_type": block.mime_type, "bytes": size}
            return f"[{block.type} {block.mime_type}, {size} bytes]", part
        case wire.ResourceLink():
            part = {"type": "resource_link", "uri": block.uri, "name": block.name}
            return f"[resource {block.uri}: {block.title or block.name}]", part
        case wire.EmbeddedResource(resource=wire.TextResourceContents() as resource):
            part = {"type": "resource", "uri": resource.uri, "media_type": resource.mime_type}
            return f"[resource {resource.uri}]\n{resource.text}", part
        case wire.EmbeddedResource(resource=wire.BlobResourceContents() as resource):
            size = len(resource.blob) * 3 // 4
            part = {
                "type": "resource",
                "uri": resource.uri,
                "media_type": resource.mime_type,
                "bytes": size,
            }
            return f"[resource {resource.uri}, {size} bytes]", part
        case wire.EmbeddedResource():
            return "[resource]", None
        case _:
            assert_never(block)


def _file(block: wire.ContentBlock, part: int) -> ServerFile | None:
    match block:
        case wire.ImageContent() | wire.AudioContent():
            ending = block.mime_type.rpartition("/")[2]
            return ServerFile(part, f"{block.type}.{ending}", block.mime_type, block.data)
        case wire.EmbeddedResource(resource=wire.BlobResourceContents() as resource):
            name = str(resource.uri).rstrip("/").rpartition("/")[2]
            return ServerFile(part, name, resource.mime_type, resource.blob)
        case _:
            return None


def input_required(
    result: wire.InputRequiredResult, task: TaskHandle | None = None
) -> InputRequired:
    questions: dict[str, Question] = {}
    unsupported = None
    for key, request in (result.input_requests or {}).items():
        match request:
            case wire.ElicitRequest(params=params):
                questions[key] = question_of(params)
            case wire.CreateMessageRequest():
                unsupported = _SAMPLING
            case wire.ListRootsRequest():
                unsupported = "it asks for the folders of a user, which there are not"
            case _:
                assert_never(request)
    return InputRequired(
        questions=questions, state=result.request_state, unsupported=unsupported, task=task
    )


def question_of(params: wire.ElicitRequestParams) -> Question:
    if isinstance(params, wire.ElicitRequestURLParams):
        return Question(message=params.message, url=params.url)
    return Question(message=params.message, schema=_with_titles(params.requested_schema))


def _with_titles(schema: JsonObject) -> JsonObject:
    """The schema with the names of choices as JSON Schema has them. Older servers write them as `enumNames`."""
    properties = as_object(schema.get("properties"))
    if properties is None:
        return schema
    return {**schema, "properties": {name: _titled(each) for name, each in properties.items()}}


def _titled(field: Json) -> Json:
    given = as_object(field)
    if given is None or "enumNames" not in given:
        return field
    rest = {key: value for key, value in given.items() if key != "enumNames"}
    values, names = given.get("enum"), given["enumNames"]
    if not isinstance(values, list) or not isinstance(names, list) or len(values) != len(names):
        return rest
    del rest["enum"]
    choices = [
        {"const": value, "title": str(name)} for value, name in zip(values, names, strict=True)
    ]
    return {**rest, "oneOf": choices}


def wire_replies(replies: Mapping[str, QuestionReply]) -> wire.InputResponses:
    return {key: wire_reply(reply) for key, reply in replies.items()}


def wire_reply(reply: QuestionReply) -> wire.ElicitResult:
    return wire.ElicitResult.model_validate({"action": reply.action, "content": reply.content})
