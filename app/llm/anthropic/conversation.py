"""The transcript as turns of the Messages API: between two answers there is one message of the user."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from app.domain.ids import CallId
from app.domain.json_values import as_object, with_sorted_keys
from app.domain.threads.media_placeholders import placeholder, text_with_placeholders
from app.domain.threads.messages import (
    Block,
    Media,
    Message,
    Role,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolOutcome,
    ToolUse,
    UnknownBlock,
)
from app.domain.threads.provider_data import PartKind, ProviderPart
from app.llm.anthropic.media import media_block
from app.llm.anthropic.model_traits import ModelTraits
from app.llm.anthropic.options import Body
from app.llm.anthropic.provider_data import caller_of, citations_of, parts_of, thought_block
from app.llm.omitted_history import OMITTED_HISTORY

_NO_WORDS = "."
"""A message of the user without content, before a system message that needs one."""
_END_OF_RESULTS = "The tool results end here. The system message that follows comes from the application, not from a tool."


@dataclass(slots=True)
class Conversation:
    """The messages of a request, and the system messages that belong before them."""

    messages: list[Body] = field(default_factory=list)
    system: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _UserTurn:
    """What stands between two answers."""

    results: list[Body] = field(default_factory=list)
    content: list[Body] = field(default_factory=list)
    system: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.results or self.content)


def conversation_of(
    messages: Sequence[Message], traits: ModelTraits, address: str, *, cites: bool
) -> Conversation:
    """Convert the transcript for a model. Provider data go back to the address that issued them only."""
    conversation = Conversation()
    turn = _UserTurn()
    for message in messages:
        match message.role:
            case Role.SYSTEM:
                _add_system(conversation, turn, traits, text_with_placeholders(message.content))
            case Role.USER:
                turn.content += _content(message.content, cites=cites)
            case Role.TOOL:
                turn.results.append(_result(message, cites=cites))
            case Role.ASSISTANT:
                if answer := _answer(message, address):
                    if turn.is_empty and not conversation.messages:
                        turn.content.append(_text(OMITTED_HISTORY))
                    _close(conversation, turn, traits)
                    turn = _UserTurn()
                    conversation.messages.append({"role": "assistant", "content": answer})
            case _:
                assert_never(message.role)
    _close(conversation, turn, traits)
    return conversation


def _add_system(
    conversation: Conversation, turn: _UserTurn, traits: ModelTraits, text: str
) -> None:
    """A system message before all others is part of the system prompt, and so is any of a model without them."""
    is_first = turn.is_empty and not turn.system and not conversation.messages
    if is_first or not traits.has_system_messages:
        conversation.system.append(text)
    else:
        turn.system.append(text)


def _close(conversation: Conversation, turn: _UserTurn, traits: ModelTraits) -> None:
    """Add the turn's messages: that of the user, then its system messages, which must follow one of the user."""
    if turn.is_empty and turn.system:
        turn.content.append(_text(_NO_WORDS))
    # The API wants results before all other content.
    content = [*turn.results, *turn.content]
    if turn.system and traits.mistakes_system_for_result and not turn.content:
        content.append(_text(_END_OF_RESULTS))
    if content:
        conversation.messages.append({"role": "user", "content": content})
    if turn.system:
        blocks = [_text(text) for text in turn.system]
        conversation.messages.append({"role": "system", "content": blocks})


def _result(message: Message, *, cites: bool) -> Body:
    result: Body = {"tool_use_id": message.tool_call_id, "type": "tool_result"}
    content = _content(message.content, cites=cites)
    return {**result, "content": content} if content else result


def _content(blocks: Sequence[Block], *, cites: bool) -> list[Body]:
    """Text in one piece; other content in the order of its blocks. Empty texts are left out."""
    if all(isinstance(block, Text) for block in blocks):
        text = "".join(block.text for block in blocks if isinstance(block, Text))
        return [_text(text)] if text else []
    found = [_block(block, cites=cites) for block in blocks]
    return [block for block in found if block is not None and block.get("text") != ""]


def _block(block: Block, *, cites: bool) -> Body | None:
    match block:
        case Text(text):
            return _text(text)
        case Media():
            return media_block(block, cites=cites)
        case Thinking():
            return None
        case ToolUse() | ToolOutcome() | Summary() | UnknownBlock():
            return _text(placeholder(block))
        case _:
            assert_never(block)


def _answer(message: Message, address: str) -> list[Body]:
    """The blocks of an answer, in the order in which the provider wrote them."""
    calls = {call.id: _call(call) for call in message.tool_calls}
    text, at = text_with_placeholders(message.content), 0
    blocks: list[Body] = []
    for part in parts_of(message, address):
        blocks += _texts(text[at : part.start])
        at = max(at, part.end)
        blocks += _blocks_of(part, text, calls)
    blocks += _texts(text[at:])
    return [*blocks, *calls.values()]


def _blocks_of(part: ProviderPart, text: str, calls: dict[CallId, Body]) -> list[Body]:
    match part.kind:
        case PartKind.TEXT:
            blocks = _texts(text[part.start : part.end])
            citations = citations_of(part)
            return [{**block, "citations": citations} for block in blocks] if citations else blocks
        case PartKind.THINKING:
            thought = thought_block(part)
            return [] if thought is None else [thought]
        case PartKind.CALL:
            # A call that the message hasn't was dropped.
            call = None if part.call_id is None else calls.pop(part.call_id, None)
            return [] if call is None else [{**call, **caller_of(part)}]
        case PartKind.OTHER:
            return [dict(part.data)] if "type" in part.data else []
        case _:
            assert_never(part.kind)


def _call(call: ToolCall) -> Body:
    arguments = as_object(call.arguments) or {}
    return {
        "id": call.id,
        "type": "tool_use",
        "name": call.name,
        "input": with_sorted_keys(arguments),
    }


def _texts(text: str) -> list[Body]:
    """A block for a piece of an answer's text. The API refuses blank ones."""
    return [_text(text)] if text and not text.isspace() else []


def _text(text: str) -> dict[str, Any]:
    return {"text": text, "type": "text"}
