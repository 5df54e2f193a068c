"""Builds the body of an OpenAI-compatible request from a ModelRequest."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, assert_never

from app.domain.inference.options import NO_OPTIONS
from app.domain.json_values import JsonObject, compact_sorted, with_sorted_keys
from app.domain.threads.media_placeholders import placeholder, text_with_placeholders
from app.domain.threads.messages import (
    Base64Source,
    Block,
    FileSource,
    Media,
    Message,
    Role,
    Source,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolOutcome,
    ToolUse,
    UnknownBlock,
    UrlSource,
)
from app.domain.tools.tool_calls import ToolDescriptor
from app.llm.encoded_messages import (
    EncodedConversation,
    EncodedMessages,
    body_with,
    encoded_json,
)
from app.llm.openai.options import Dialect, parameters_of
from app.llm.openai.provider_data import call_fields_of, fields_of
from app.runtime.ports.models import ModelRequest
from app.runtime.ports.outputs import NativeOutput

DEFAULT_DIALECT = Dialect()
NO_ISSUER: JsonObject = {}


def request_body(
    request: ModelRequest,
    model: str,
    parameters: Mapping[str, Any],
    dialect: Dialect = DEFAULT_DIALECT,
    issuer: JsonObject = NO_ISSUER,
    encoded: EncodedMessages | None = None,
) -> bytes:
    """Return the JSON body. The request's options override `parameters`, which are the endpoint's own.

    Provider data go back to their `issuer` only. Messages that `encoded` has aren't encoded again.
    """
    messages = _messages(request.messages, issuer, encoded or EncodedMessages(0))
    if request.system_prompt:
        messages.insert(0, encoded_json({"role": "system", "content": request.system_prompt}))
    body: dict[str, Any] = {
        **parameters,
        "model": model,
        "messages": (),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.options != NO_OPTIONS:
        body |= parameters_of(request.options, dialect)
        body["model"] = request.options.upstream_model or model
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        if request.tool_choice is not None:
            body["tool_choice"] = _tool_choice(request.tool_choice)
    if request.output is not None:
        body["response_format"] = _response_format(request.output)
    return body_with(body, "messages", messages)


def _messages(
    messages: Sequence[Message], issuer: JsonObject, encoded: EncodedMessages
) -> list[bytes]:
    """The messages as JSON. Results of calls can only be text here, so their media follow as a user message."""
    bodies: list[bytes] = []
    conversation = EncodedConversation(encoded, issuer)
    at = 0
    while at < len(messages):
        if (known := conversation.known(messages, at)) is not None:
            bodies.append(known.text)
            at += known.count
            continue
        end = _end_of_results(messages, at)
        new = [(each, encoded_json(_message(each, issuer))) for each in messages[at:end]]
        bodies += (text for _, text in new)
        if media := [part for each, _ in new for part in _media_of_result(each)]:
            bodies.append(encoded_json({"role": "user", "content": media}))
            conversation.skip()
        else:
            for each, text in new:
                conversation.add([each], text)
        at = end
    conversation.close()
    return bodies


def _end_of_results(messages: Sequence[Message], at: int) -> int:
    """The place behind the results of calls that begin here; behind one message if it isn't a result."""
    end = at + 1
    if messages[at].role is Role.TOOL:
        while end < len(messages) and messages[end].role is Role.TOOL:
            end += 1
    return end


def _media_of_result(message: Message) -> Iterator[dict[str, Any]]:
    if message.role is not Role.TOOL:
        return
    for block in message.content:
        if isinstance(block, Media):
            title = f" {block.title!r}" if block.title else ""
            text = f"[the {block.type}{title} of the result of the call {message.tool_call_id}]"
            yield {"type": "text", "text": text}
            yield _media(block)


def _tool_choice(choice: str) -> str | dict[str, Any]:
    name = choice.removeprefix("tool:")
    return choice if name == choice else {"type": "function", "function": {"name": name}}


def _response_format(output: NativeOutput) -> dict[str, Any]:
    body = {"name": output.name, "schema": with_sorted_keys(output.schema), "strict": output.strict}
    return {"type": "json_schema", "json_schema": body}


def _tool(tool: ToolDescriptor) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        },
    }


def _message(message: Message, issuer: JsonObject) -> dict[str, Any]:
    match message.role:
        case Role.SYSTEM:
            return {"role": "system", "content": text_with_placeholders(message.content)}
        case Role.USER:
            return {"role": "user", "content": _content(message.content)}
        case Role.TOOL:
            return {
                "role": "tool",
                "tool_call_id": message.tool_call_id,
                "content": text_with_placeholders(_without_media(message.content)),
            }
        case Role.ASSISTANT:
            body: dict[str, Any] = {
                "role": "assistant",
                "content": text_with_placeholders(message.content),
            }
            if message.tool_calls:
                body["tool_calls"] = [_call(call) for call in message.tool_calls]
            if message.provider_data is not None:
                _add_provider_data(body, message, issuer)
            return body
        case _:
            assert_never(message.role)


def _without_media(content: Sequence[Block]) -> Sequence[Block]:
    return [block for block in content if not isinstance(block, Media)]


def _add_provider_data(body: dict[str, Any], message: Message, issuer: JsonObject) -> None:
    body |= fields_of(message, issuer)
    of_calls = call_fields_of(message, issuer)
    for call in body.get("tool_calls", ()):
        call |= of_calls.get(call["id"], {})


def _call(call: ToolCall) -> dict[str, Any]:
    arguments = "{}" if call.arguments is None else compact_sorted(call.arguments)
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _content(blocks: Sequence[Block]) -> str | list[dict[str, Any]]:
    """Plain text stays a string, which every server accepts. Other content becomes a list of parts."""
    if all(isinstance(block, Text) for block in blocks):
        return "".join(block.text for block in blocks if isinstance(block, Text))
    return [part for block in blocks if (part := _part(block)) is not None]


def _part(block: Block) -> dict[str, Any] | None:
    match block:
        case Text(text):
            return {"type": "text", "text": text}
        case Media(source=FileSource()):
            return {"type": "text", "text": placeholder(block)}
        case Media():
            return _media(block)
        case Thinking():
            return None
        case ToolUse() | ToolOutcome() | Summary() | UnknownBlock():
            return {"type": "text", "text": placeholder(block)}
        case _:
            assert_never(block)


def _media(media: Media) -> dict[str, Any]:
    match media.type:
        case "image":
            return {"type": "image_url", "image_url": {"url": _url(media.source)}}
        case "video":
            return {"type": "video_url", "video_url": {"url": _url(media.source)}}
        case "document":
            name = media.title or "document"
            return {"type": "file", "file": {"filename": name, "file_data": _url(media.source)}}
        case "audio":
            return _audio(media.source)
        case _:
            assert_never(media.type)


def _audio(source: Source) -> dict[str, Any]:
    match source:
        case Base64Source(media_type, data):
            format_ = media_type.rpartition("/")[2].removeprefix("x-")
            audio = {"data": data, "format": "mp3" if format_ == "mpeg" else format_}
            return {"type": "input_audio", "input_audio": audio}
        case UrlSource(url):
            return {"type": "audio_url", "audio_url": {"url": url}}
        case FileSource():
            raise AssertionError("files are loaded before the request")
        case _:
            assert_never(source)


def _url(source: Source) -> str:
    match source:
        case Base64Source(media_type, data):
            return f"data:{media_type};base64,{data}"
        case UrlSource(url):
            return url
        case FileSource():
            raise AssertionError("files are loaded before the request")
        case _:
            assert_never(source)
