"""The input of a run without a stored range: from its request, else from the earlier log."""

import pytest

from app.domain.ids import MessageId, RunId
from app.domain.json_values import JsonObject
from app.domain.runs.message_input import inferred_input
from app.domain.runs.runs import MessageInput
from app.domain.threads.messages import LoggedMessage, Message, MessageRange, Role, Text

RUN = RunId("run-1")


def _log(*names: str, own: int = 0) -> list[LoggedMessage]:
    """Messages of users, and behind them as many of the run's own."""
    users = [Message(id=MessageId(name), role=Role.USER, content=(Text(name),)) for name in names]
    answers = [
        Message(id=MessageId(f"own-{n}"), role=Role.ASSISTANT, content=(Text("x"),), run_id=RUN)
        for n in range(own)
    ]
    return [LoggedMessage(seq, message) for seq, message in enumerate([*users, *answers], 1)]


@pytest.mark.parametrize("own", [0, 2])
@pytest.mark.parametrize(
    "request_, expected",
    [
        ({"input_message_ids": ["c"]}, MessageInput(MessageRange(3, 3), (MessageId("c"),))),
        ({"input_message_ids": ["b"]}, MessageInput(MessageRange(2, 2), (MessageId("b"),))),
        ({"input_message_ids": ["gone"]}, MessageInput(MessageRange(3, 3), (MessageId("gone"),))),
        ({"input_message_count": 2}, MessageInput(MessageRange(2, 3))),
        ({"input_message_count": 9}, MessageInput(MessageRange(1, 3))),
        ({"input_message_count": 0}, MessageInput(MessageRange(1, 3))),
        ({}, MessageInput(MessageRange(1, 3))),
    ],
)
def test_the_input_follows_from_the_request_else_from_the_initial_messages(
    request_: JsonObject, expected: MessageInput, own: int
) -> None:
    assert inferred_input(request_, _log("a", "b", "c", own=own), RUN) == expected


def test_the_larger_of_the_count_and_the_ids_counts() -> None:
    request = {"input_message_ids": ["gone"], "input_message_count": 2}
    found = inferred_input(request, _log("a", "b", "c"), RUN)
    assert found == MessageInput(MessageRange(2, 3), (MessageId("gone"),))


@pytest.mark.parametrize("own", [0, 1])
def test_no_initial_messages_are_no_input(own: int) -> None:
    assert inferred_input({}, _log(own=own), RUN) is None


def test_a_range_counts_by_place_in_the_thread_and_not_in_the_list() -> None:
    """The list omits messages that were rolled back."""
    behind = [LoggedMessage(entry.seq + 10, entry.message) for entry in _log("a", "b")]
    assert inferred_input({"input_message_count": 1}, behind, RUN) == MessageInput(
        MessageRange(12, 12)
    )
