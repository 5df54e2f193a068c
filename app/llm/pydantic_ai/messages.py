"""What the runtime wants to know, in pydantic-ai's words."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import TypeAlias, assert_never

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
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from app.domain.ids import CallId
from app.domain.inference.failures import FailureKind, failed
from app.domain.json_values import as_object, compact
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
from app.runtime.ports import ModelRequest

_GOES_ON = "[The conversation goes on from here; what was before is left out.]"
"""Where a view of a long thread begins with an answer: some providers insist that a user speaks first."""

_Url: TypeAlias = type[ImageUrl] | type[AudioUrl] | type[VideoUrl] | type[DocumentUrl]
_URLS: Mapping[MediaType, _Url] = {
    "image": ImageUrl,
    "audio": AudioUrl,
    "video": VideoUrl,
    "document": DocumentUrl,
}


def parameters_of(request: ModelRequest) -> ModelRequestParameters:
    """The tools, and the system prompt, which every provider wants in another place."""
    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_json_schema=dict(tool.parameters),
            )
            for tool in request.tools
        ],
        instruction_parts=[InstructionPart(content=request.system_prompt)]
        if request.system_prompt
        else [],
    )


def history_of(messages: Sequence[Message]) -> list[ModelMessage]:
    """The transcript as turns: all that isn't the model's, up to its next answer, is one request."""
    history: list[ModelMessage] = []
    asked: list[SdkRequestPart] = []
    tools: dict[CallId, str] = {}
    for message in messages:
        if message.role is not Role.ASSISTANT:
            asked.append(_asked(message, tools))
        elif answer := _answer(message):
            if not history and all(isinstance(part, SystemPromptPart) for part in asked):
                asked.append(UserPromptPart(content=_GOES_ON))
            if asked:
                history.append(SdkRequest(parts=asked))
                asked = []
            history.append(ModelResponse(parts=answer))
            tools |= {call.id: call.name for call in message.tool_calls}
    if asked:
        history.append(SdkRequest(parts=asked))
    return history


def _asked(message: Message, tools: dict[CallId, str]) -> SdkRequestPart:
    match message.role:
        case Role.SYSTEM:
            return SystemPromptPart(content=text_with_placeholders(message.content))
        case Role.TOOL:
            call_id = message.tool_call_id or CallId("")
            return ToolReturnPart(
                tool_name=tools.get(call_id, ""),
                content=text_with_placeholders(message.content),
                tool_call_id=call_id,
            )
        case _:
            return UserPromptPart(content=_content(message.content))


def _answer(message: Message) -> list[ModelResponsePart]:
    words = text_with_placeholders(message.content)
    parts: list[ModelResponsePart] = [TextPart(content=words)] if words else []
    return [*parts, *(_call(call) for call in message.tool_calls)]


def _call(call: ToolCall) -> ToolCallPart:
    arguments = as_object(call.arguments)
    return ToolCallPart(
        tool_name=call.name,
        args=arguments or ("{}" if call.arguments is None else compact(call.arguments)),
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
