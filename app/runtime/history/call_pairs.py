"""Finds the result of each call, although ids may be reused and results may come twice."""

from collections.abc import Sequence
from typing import TypeAlias

from app.domain.ids import CallId, MessageId
from app.domain.structs import replace
from app.domain.threads.messages import Message, Role, Text
from app.domain.tools.tool_calls import INTERRUPTED

_TOOL, _ASSISTANT = Role.TOOL, Role.ASSISTANT
"""Names of their own, because Python 3.11 looks up members of enums slowly."""

Pairs: TypeAlias = dict[int, dict[CallId, int]]
"""Index of an assistant message → its calls → the index of the last result of each."""


def pairs_of(messages: Sequence[Message]) -> Pairs:
    """A result belongs to the newest message before it with that call; the last result counts."""
    pairs: Pairs = {}
    called_at: dict[CallId, int] = {}
    for index, message in enumerate(messages):
        if message.tool_calls:
            pairs[index] = {}
            for call in message.tool_calls:
                called_at[call.id] = index
        elif message.role is _TOOL and message.tool_call_id in called_at:
            pairs[called_at[message.tool_call_id]][message.tool_call_id] = index
    return pairs


def with_one_result_per_call(messages: Sequence[Message]) -> list[Message]:
    """The messages, with one result per call right behind the call's message.

    Calls show the arguments that they ran with. A call without a result gets one that says it was
    interrupted. Results without a call and empty assistant messages are left out.
    """
    if not any(message.tool_calls or message.role is _TOOL for message in messages):
        return [each for each in messages if each.content or each.role is not _ASSISTANT]
    pairs = pairs_of(messages)
    view: list[Message] = []
    for index, message in enumerate(messages):
        if message.role is _TOOL:
            continue
        if index in pairs:
            results = {id_: messages[at] for id_, at in pairs[index].items()}
            view.append(_with_effective_arguments(message, results))
            view.extend(results.get(call.id) or _missing(call.id) for call in message.tool_calls)
        elif message.content or message.role is not _ASSISTANT:
            view.append(message)
    return view


def _with_effective_arguments(message: Message, results: dict[CallId, Message]) -> Message:
    if all(result.edited_arguments is None for result in results.values()):
        return message
    calls = tuple(
        replace(call, arguments=result.edited_arguments)
        if (result := results.get(call.id)) is not None and result.edited_arguments is not None
        else call
        for call in message.tool_calls
    )
    return replace(message, tool_calls=calls)


def _missing(call_id: CallId) -> Message:
    return Message(
        id=MessageId(call_id), role=Role.TOOL, content=(Text(INTERRUPTED),), tool_call_id=call_id
    )
