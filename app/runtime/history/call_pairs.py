"""Which result belongs to which call, where ids may be used again and results may come twice."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from app.domain.ids import CallId, MessageId
from app.domain.threads.messages import Message, Role, Text
from app.domain.tools.tool_calls import INTERRUPTED

Pairs: TypeAlias = dict[int, dict[CallId, int]]
"""Place of a message that asks → its calls → the place of the last result of each."""


def pairs_of(messages: Sequence[Message]) -> Pairs:
    """A result belongs to the newest message before it that made the call; the last one counts."""
    pairs: Pairs = {}
    asked_at: dict[CallId, int] = {}
    for place, message in enumerate(messages):
        if message.tool_calls:
            pairs[place] = {}
            for call in message.tool_calls:
                asked_at[call.id] = place
        elif message.role is Role.TOOL and message.tool_call_id in asked_at:
            pairs[asked_at[message.tool_call_id]][message.tool_call_id] = place
    return pairs


def answered(messages: Sequence[Message]) -> list[Message]:
    """Assistant messages followed at once by one result of each of their calls, as it was really run.

    A call that has none was interrupted; a result that nobody asked for, and a message that says
    nothing, are left out.
    """
    pairs = pairs_of(messages)
    view: list[Message] = []
    for place, message in enumerate(messages):
        if message.role is Role.TOOL:
            continue
        if place in pairs:
            results = {id_: messages[at] for id_, at in pairs[place].items()}
            view.append(_as_run(message, results))
            view.extend(results.get(call.id) or _missing(call.id) for call in message.tool_calls)
        elif message.content or message.role is not Role.ASSISTANT:
            view.append(message)
    return view


def _as_run(message: Message, results: dict[CallId, Message]) -> Message:
    if all(result.ran_with is None for result in results.values()):
        return message
    calls = tuple(
        replace(call, arguments=result.ran_with)
        if (result := results.get(call.id)) is not None and result.ran_with is not None
        else call
        for call in message.tool_calls
    )
    return replace(message, tool_calls=calls)


def _missing(call_id: CallId) -> Message:
    return Message(
        id=MessageId(call_id), role=Role.TOOL, content=(Text(INTERRUPTED),), tool_call_id=call_id
    )
