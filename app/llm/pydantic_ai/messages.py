"""Converts a ModelRequest to pydantic-ai's messages and parameters."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, assert_never

from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    InstructionPart,
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.messages import ModelRequest as SdkRequest
from pydantic_ai.messages import ModelRequestPart as SdkRequestPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.native_tools import AbstractNativeTool
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition

from app.domain.ids import CallId
from app.domain.inference.failures import FailureKind, failed
from app.domain.json_values import as_object, compact_sorted, with_sorted_keys
from app.domain.threads.media_placeholders import placeholder, text_with_placeholders
from app.domain.threads.messages import (
    Base64Source,
    Block,
    Media,
    MediaType,
    Message,
    Role,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolOutcome,
    ToolUse,
    UnknownBlock,
    UrlSource,
)
from app.llm.omitted_history import OMITTED_HISTORY
from app.llm.pydantic_ai.provider_data import answer_with_data, is_readable
from app.runtime.ports.models import ModelRequest

_Url: TypeAlias = type[ImageUrl] | type[AudioUrl] | type[VideoUrl] | type[DocumentUrl]
_URLS: Mapping[MediaType, _Url] = {
    "image": ImageUrl,
    "audio": AudioUrl,
    "video": VideoUrl,
    "document": DocumentUrl,
}


def parameters_of(
    request: ModelRequest, native_tools: Sequence[AbstractNativeTool] = ()
) -> ModelRequestParameters:
    """The tools and the system prompt. Each provider expects the prompt in another place."""
    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_json_schema=dict(tool.parameters),
            )
            for tool in request.tools
        ],
        native_tools=list(native_tools),
        instruction_parts=[InstructionPart(content=request.system_prompt)]
        if request.system_prompt
        else [],
        **_output_of(request),
    )


def _output_of(request: ModelRequest) -> dict[str, Any]:
    output = request.output
    if output is None:
        return {}
    definition = OutputObjectDefinition(
        json_schema=with_sorted_keys(output.schema), name=output.name, strict=output.strict or None
    )
    return {"output_mode": "native", "output_object": definition}


def history_of(messages: Sequence[Message], model: Model) -> list[ModelMessage]:
    """Convert the transcript for this model. All messages between two answers become one request."""
    history: list[ModelMessage] = []
    request_parts: list[SdkRequestPart] = []
    tools: dict[CallId, str] = {}
    for message in messages:
        if message.role is not Role.ASSISTANT:
            request_parts.append(_request_part(message, tools))
        elif (answer := _answer(message, model)).parts:
            if not history and all(isinstance(part, SystemPromptPart) for part in request_parts):
                request_parts.append(UserPromptPart(content=OMITTED_HISTORY))
            if request_parts:
                history.append(SdkRequest(parts=request_parts))
                request_parts = []
            history.append(answer)
            tools |= {call.id: call.name for call in message.tool_calls}
    if request_parts:
        history.append(SdkRequest(parts=request_parts))
    return history


def _request_part(message: Message, tools: dict[CallId, str]) -> SdkRequestPart:
    match message.role:
        case Role.SYSTEM:
            return SystemPromptPart(content=text_with_placeholders(message.content))
        case Role.TOOL:
            call_id = message.tool_call_id or CallId("")
            return ToolReturnPart(
                tool_name=tools.get(call_id, ""),
                content=_result_content(message.content),
                tool_call_id=call_id,
            )
        case _:
            return UserPromptPart(content=_content(message.content))


def _result_content(blocks: Sequence[Block]) -> Any:
    """The text of a result, and its media behind it. The SDK sends them where the provider takes them."""
    media = [block for block in blocks if isinstance(block, Media)]
    text = text_with_placeholders([block for block in blocks if not isinstance(block, Media)])
    if not media:
        return text
    return [text, *(_user_content(block) for block in media)]


def _answer(message: Message, model: Model) -> ModelResponse:
    data = message.provider_data
    if data is not None and is_readable(data):
        return answer_with_data(message, data, model, _call)
    text = text_with_placeholders(message.content)
    parts: list[ModelResponsePart] = [TextPart(content=text)] if text else []
    return ModelResponse(parts=[*parts, *(_call(call) for call in message.tool_calls)])


def _call(call: ToolCall) -> ToolCallPart:
    arguments = as_object(call.arguments)
    return ToolCallPart(
        tool_name=call.name,
        args=with_sorted_keys(arguments)
        or ("{}" if call.arguments is None else compact_sorted(call.arguments)),
        tool_call_id=call.id,
    )


def _content(blocks: Sequence[Block]) -> str | list[UserContent]:
    if all(isinstance(block, Text) for block in blocks):
        return "".join(block.text for block in blocks if isinstance(block, Text))
    return [content for block in blocks if (content := _user_content(block)) is not None]


def _user_content(block: Block) -> UserContent | None:
    match block:
        case Text(text):
            return text
        case Media(type_, UrlSource(url)):
            return _URLS[type_](url=url)
        case Media(_, Base64Source(media_type, data)):
            try:
                return BinaryContent(base64.b64decode(data, validate=True), media_type=media_type)
            except binascii.Error:
                raise failed(
                    FailureKind.INVALID_REQUEST, "a message has media that aren't base64"
                ) from None
        case Thinking():
            return None
        case Media() | ToolUse() | ToolOutcome() | Summary() | UnknownBlock():
            return placeholder(block)
        case _:
            assert_never(block)
