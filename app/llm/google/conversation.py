"""The transcript as contents of the Gemini API: those of the user, and the model's answers between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

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
from app.llm.encoded_turns import TurnEncoder
from app.llm.google.media import media_part, media_type_of
from app.llm.google.model_traits import GoogleTraits
from app.llm.google.options import Body
from app.llm.google.provider_data import SIGNATURE, parts_of, signature_in
from app.llm.omitted_history import OMITTED_HISTORY

_NO_SIGNATURE = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
"""Stands for the signature of an answer's first call, which the API needs: `skip_thought_signature_validator`."""
_RESPONSE = "functionResponse"


@dataclass(slots=True)
class _UserContent:
    """What stands between two answers."""

    parts: list[Body] = field(default_factory=list)
    media_of_results: list[Body] = field(default_factory=list)
    """Media that can't stand in a result. They follow all results."""


class GoogleConversation(TurnEncoder):
    """Converts a transcript for a model. Provider data go back to the address that issued them only."""

    def __init__(self, traits: GoogleTraits, address: str) -> None:
        self._traits = traits
        self._address = address

    def system(self, messages: Sequence[Message]) -> list[str]:
        """The system messages, which stand before all contents."""
        return [
            text_with_placeholders(each.content) for each in messages if each.role is Role.SYSTEM
        ]

    def begins_turn(self, message: Message) -> bool:
        return message.role is Role.ASSISTANT and bool(
            _answer(message, self._traits, self._address)
        )

    def is_complete(self, turn: Sequence[Message]) -> bool:
        return _results_in(turn) <= _tools_of(turn).keys()

    def opening(self, messages: Sequence[Message], *, has_answer: bool) -> list[Body]:
        contents: list[Body] = []
        turn = _UserContent()
        for message in messages:
            self._add(turn, message, {})
        if has_answer and not turn.parts:
            turn.parts.append({"text": OMITTED_HISTORY})
        _close(contents, turn)
        if not contents:
            contents.append({"role": "user", "parts": [{"text": ""}]})
        return contents

    def turns(self, messages: Sequence[Message], begin: int, end: int) -> list[Body]:
        contents: list[Body] = []
        turn = _UserContent()
        of_turns = messages[begin:end]
        is_complete = self.is_complete(of_turns)
        tools = {} if is_complete else _tools_of(messages[:begin])
        for message in of_turns:
            if message.role is not Role.ASSISTANT:
                self._add(turn, message, tools)
            elif answer := _answer(message, self._traits, self._address):
                _close(contents, turn)
                turn = _UserContent()
                contents.append({"role": "model", "parts": answer})
                tools |= _tools_of([message])
        _close(contents, turn)
        return contents

    def _add(self, turn: _UserContent, message: Message, tools: Mapping[CallId, str]) -> None:
        match message.role:
            case Role.USER:
                turn.parts += _content(message.content)
            case Role.TOOL:
                _add_result(turn, message, tools, self._traits)
            case Role.SYSTEM | Role.ASSISTANT:
                # A system message stands elsewhere, and this answer has no content.
                pass
            case _:
                assert_never(message.role)


def _tools_of(messages: Sequence[Message]) -> dict[CallId, str]:
    """The names of the called tools."""
    return {call.id: call.name for message in messages for call in message.tool_calls}


def _results_in(messages: Sequence[Message]) -> set[CallId]:
    """The calls whose results are among the messages."""
    return {each.tool_call_id or CallId("") for each in messages if each.role is Role.TOOL}


def _close(contents: list[Body], turn: _UserContent) -> None:
    """Add the turn's contents. The API takes all parts of a content with results for the model's words."""
    parts = turn.parts
    if turn.media_of_results:
        after = max(at for at, part in enumerate(parts) if _RESPONSE in part) + 1
        parts[after:after] = turn.media_of_results
    content: list[Body] = []
    for part in parts:
        if content and _RESPONSE in content[-1] and _RESPONSE not in part:
            contents.append({"role": "user", "parts": content})
            content = []
        content.append(part)
    if content:
        contents.append({"role": "user", "parts": content})


def _add_result(
    turn: _UserContent, message: Message, tools: Mapping[CallId, str], traits: GoogleTraits
) -> None:
    call_id = message.tool_call_id or CallId("")
    media = [block for block in message.content if isinstance(block, Media)]
    text = text_with_placeholders(
        [block for block in message.content if not isinstance(block, Media)]
    )
    response: Body = {
        "id": call_id,
        "name": tools.get(call_id, ""),
        "response": {"return_value": text},
    }
    within = [each for each in media if media_type_of(each) in traits.media_of_results]
    if within:
        response["parts"] = [media_part(each) for each in within]
    turn.parts.append({_RESPONSE: response})
    for each in media:
        if each not in within:
            title = f" {each.title!r}" if each.title else ""
            named = f"[the {each.type}{title} of the result of the call {call_id}]"
            turn.media_of_results += [{"text": named}, media_part(each)]


def _content(blocks: Sequence[Block]) -> list[Body]:
    """Text in one piece; other content in the order of its blocks."""
    if all(isinstance(block, Text) for block in blocks):
        text = "".join(block.text for block in blocks if isinstance(block, Text))
        return [{"text": text}]
    found = [_part(block) for block in blocks]
    return [part for part in found if part is not None]


def _part(block: Block) -> Body | None:
    match block:
        case Text(text):
            return {"text": text}
        case Media():
            return media_part(block)
        case Thinking():
            return None
        case ToolUse() | ToolOutcome() | Summary() | UnknownBlock():
            return {"text": placeholder(block)}
        case _:
            assert_never(block)


def _answer(message: Message, traits: GoogleTraits, address: str) -> list[Body]:
    """The parts of an answer, in the order in which the model wrote them."""
    calls = {call.id: _call(call) for call in message.tool_calls}
    text, at = text_with_placeholders(message.content), 0
    parts: list[Body] = []
    for part in parts_of(message, address):
        parts += _texts(text[at : part.start])
        at = max(at, part.end)
        parts += _parts_of(part, text, calls, traits)
    parts += _texts(text[at:])
    parts += calls.values()
    first_call = next((part for part in parts if "functionCall" in part), None)
    if first_call is not None:
        first_call.setdefault(SIGNATURE, _NO_SIGNATURE)
    return parts


def _parts_of(
    part: ProviderPart, text: str, calls: dict[CallId, Body], traits: GoogleTraits
) -> list[Body]:
    signature = signature_in(part)
    match part.kind:
        case PartKind.TEXT:
            piece = text[part.start : part.end]
            return [{"text": piece, **signature}] if piece or signature else []
        case PartKind.THINKING:
            return [{"text": part.text, "thought": True, **signature}] if signature else []
        case PartKind.CALL:
            # A call that the message hasn't was dropped.
            call = None if part.call_id is None else calls.pop(part.call_id, None)
            return [] if call is None else [{**call, **signature}]
        case PartKind.OTHER:
            is_of_tool = "toolCall" in part.data or "toolResponse" in part.data
            return (
                [dict(part.data)] if part.data and (traits.combines_tools or not is_of_tool) else []
            )
        case _:
            assert_never(part.kind)


def _call(call: ToolCall) -> Body:
    arguments = with_sorted_keys(as_object(call.arguments) or {})
    return {"functionCall": {"id": call.id, "name": call.name, "args": arguments}}


def _texts(text: str) -> list[Body]:
    return [{"text": text}] if text else []
