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
from app.llm.anthropic.cache_markers import is_cacheable
from app.llm.anthropic.media import media_block
from app.llm.anthropic.model_traits import ModelTraits
from app.llm.anthropic.options import Body
from app.llm.anthropic.provider_data import caller_of, citations_of, parts_of, thought_block
from app.llm.encoded_turns import TurnEncoder
from app.llm.omitted_history import OMITTED_HISTORY

_NO_WORDS = "."
"""A message of the user without content, before a system message that needs one."""
_END_OF_RESULTS = "The tool results end here. The system message that follows comes from the application, not from a tool."


@dataclass(slots=True)
class _UserTurn:
    """What stands between two answers."""

    results: list[Body] = field(default_factory=list)
    content: list[Body] = field(default_factory=list)
    system: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.results or self.content)


class AnthropicConversation(TurnEncoder):
    """Converts a transcript for a model. Provider data go back to the address that issued them only."""

    def __init__(self, traits: ModelTraits, address: str, *, cites: bool) -> None:
        self._traits = traits
        self._address = address
        self._cites = cites

    def system(self, messages: Sequence[Message]) -> list[str]:
        """The system messages that belong to the system prompt: those before all others, or all of them if the
        model has none."""
        if not self._traits.has_system_messages:
            return [_system_text(each) for each in messages if each.role is Role.SYSTEM]
        found: list[str] = []
        for message in messages:
            if message.role is Role.SYSTEM:
                found.append(_system_text(message))
            elif not self._is_empty(message):
                break
        return found

    def begins_turn(self, message: Message) -> bool:
        return message.role is Role.ASSISTANT and bool(_answer(message, self._address))

    def may_be_last(self, message: Message) -> bool:
        # A cache marker is added to a block of the last turn.
        return message.role is Role.ASSISTANT and any(
            map(is_cacheable, _answer(message, self._address))
        )

    def opening(self, messages: Sequence[Message], *, has_answer: bool) -> list[Body]:
        items: list[Body] = []
        turn = _UserTurn()
        for message in messages:
            # A system message before all others is part of the system prompt.
            if message.role is not Role.SYSTEM or not turn.is_empty:
                self._add(turn, message)
        if has_answer and turn.is_empty:
            turn.content.append(_text(OMITTED_HISTORY))
        self._close(items, turn)
        return items

    def turns(self, messages: Sequence[Message], begin: int, end: int) -> list[Body]:
        items: list[Body] = []
        turn = _UserTurn()
        for message in messages[begin:end]:
            if message.role is not Role.ASSISTANT:
                self._add(turn, message)
            elif answer := _answer(message, self._address):
                self._close(items, turn)
                turn = _UserTurn()
                items.append({"role": "assistant", "content": answer})
        self._close(items, turn)
        return items

    def _add(self, turn: _UserTurn, message: Message) -> None:
        match message.role:
            case Role.SYSTEM:
                if self._traits.has_system_messages:
                    turn.system.append(_system_text(message))
            case Role.USER:
                turn.content += _content(message.content, cites=self._cites)
            case Role.TOOL:
                turn.results.append(_result(message, cites=self._cites))
            case Role.ASSISTANT:
                # Its answer has no content.
                pass
            case _:
                assert_never(message.role)

    def _is_empty(self, message: Message) -> bool:
        """Whether a message that isn't a system message has no content."""
        match message.role:
            case Role.USER:
                return not _content(message.content, cites=self._cites)
            case Role.ASSISTANT:
                return not self.begins_turn(message)
            case _:
                return False

    def _close(self, items: list[Body], turn: _UserTurn) -> None:
        """Add the turn's messages: that of the user, then its system messages, which must follow one of the user."""
        if turn.is_empty and turn.system:
            turn.content.append(_text(_NO_WORDS))
        # The API wants results before all other content.
        content = [*turn.results, *turn.content]
        if turn.system and self._traits.mistakes_system_for_result and not turn.content:
            content.append(_text(_END_OF_RESULTS))
        if content:
            items.append({"role": "user", "content": content})
        if turn.system:
            items.append({"role": "system", "content": [_text(text) for text in turn.system]})


def _system_text(message: Message) -> str:
    return text_with_placeholders(message.content)


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
