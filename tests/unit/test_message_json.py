"""Messages as JSON omit absent fields."""

from typing import Any

import pytest

from app.domain.ids import CallId, RunId
from app.domain.structs import replace
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
            {"tool_calls": [{"tool_call_id": "c1", "name": "pay", "arguments": {"a": 1}}]},
        ),
        ({"tool_call_id": CallId("c1")}, {"tool_call_id": "c1"}),
        ({"visibility": Visibility.INTERNAL}, {"visibility": "internal"}),
        ({"run_id": RunId("r")}, {"metadata": {"run_id": "r", "step_index": None}}),
        (
            {"run_id": RunId("r"), "step_index": 0},
            {"metadata": {"run_id": "r", "step_index": 0}},
        ),
        ({"edited_arguments": {}}, {"edited_arguments": {}}),
        ({"cut_short": TruncationReason.CANCELLED}, {"cut_short": "cancelled"}),
    ],
)
def test_a_message_as_json_has_its_set_fields_only(
    changes: dict[str, Any], more: dict[str, Any]
) -> None:
    written: Message = replace(BARE, **changes)
    assert message_to_json(written) == {**BODY, **more}
