"""The log as a provider should see it: every call with exactly one result, as it was really run.

A view, never a repair: the log stays as it is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.domain.ids import CallId, MessageId
from app.domain.messages import LoggedMessage, Message, Role, Text
from app.domain.tool_calls import INTERRUPTED


def provider_view(log: Sequence[LoggedMessage]) -> list[Message]:
    """Assistant messages followed at once by the last result of each of their calls."""
    messages = [entry.message for entry in log]
    while messages and messages[-1].cut_short is not None:
        # Nobody has answered to it: whoever tries again says it anew, and doesn't go on in its middle.
        messages.pop()
    view: list[Message] = []
    for index, message in enumerate(messages):
        if message.role is Role.TOOL:
            continue
        if not message.tool_calls:
            if message.content or message.role is not Role.ASSISTANT:
                view.append(message)
            continue
        results = _last_results(message, messages[index + 1 :])
        view.append(_as_run(message, results))
        view.extend(results.get(call.id) or _missing(call.id) for call in message.tool_calls)
    return view


def _last_results(message: Message, after: Sequence[Message]) -> dict[CallId, Message]:
    """Results belong to the newest message that asked: ids may be used again by a later one."""
    open_calls = {call.id for call in message.tool_calls}
    results: dict[CallId, Message] = {}
    for later in _until_reused(open_calls, after):
        if later.tool_call_id in open_calls:
            results[later.tool_call_id] = later
    return results


def _until_reused(open_calls: set[CallId], after: Sequence[Message]) -> Iterator[Message]:
    for later in after:
        if any(call.id in open_calls for call in later.tool_calls):
            return
        yield later


def _as_run(message: Message, results: dict[CallId, Message]) -> Message:
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
