"""Messages as JSON: what is absent is left out."""

from dataclasses import replace
from typing import Any

import pytest

from app.domain.ids import CallId, RunId
from app.domain.threads.messages import Message, Role, TruncationReason, Visibility, message_to_json
from tests.support.logs import call, message

BARE = message("m", Role.USER, "hi")
BODY: dict[str, Any] = {
    "id": "m",
    "role": "user",
    "content": [{"type": "text", "text": "hi"}],
}


@pytest.mark.parametrize(
    "changes, more",
    [
        ({}, {}),
        (
            {"tool_calls": (call("c1", "pay", {"a": 1}),)},
            {"tool_calls": [{"id": "c1", "name": "pay", "arguments": {"a": 1}}]},
        ),
        ({"tool_call_id": CallId("c1")}, {"tool_call_id": "c1"}),
        ({"visibility": Visibility.INTERNAL}, {"visibility": "internal"}),
        ({"run_id": RunId("r")}, {"metadata": {"run_id": "r", "step_index": None}}),
        (
            {"run_id": RunId("r"), "step_index": 0},
            {"metadata": {"run_id": "r", "step_index": 0}},
        ),
        ({"ran_with": {}}, {"ran_with": {}}),
        ({"cut_short": TruncationReason.CANCELLED}, {"cut_short": "cancelled"}),
    ],
)
def test_each_part_of_a_message_is_written_when_it_is_there(
    changes: dict[str, Any], more: dict[str, Any]
) -> None:
    written: Message = replace(BARE, **changes)
    assert message_to_json(written) == {**BODY, **more}
