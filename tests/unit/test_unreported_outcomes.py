"""Unreported outcomes of calls survive a round trip."""

import json

import pytest

from app.domain.ids import CallId
from app.domain.threads.messages import ToolCall
from app.domain.tools.tool_calls import (
    CallState,
    CallStatus,
    Effect,
    ResumeMode,
    SuspensionRequest,
    ToolResult,
    UnreportedOutcome,
    outcome_from_json,
    outcome_to_json,
)

ASKED = SuspensionRequest(
    "Sure?", "check", ResumeMode.PASS_DECISION_TO_TOOL, {"type": "boolean"}, "confirm"
)


@pytest.mark.parametrize(
    "outcome",
    [
        UnreportedOutcome(ToolResult.success("pay", {"n": [1]}, "paid")),
        UnreportedOutcome(
            ToolResult.success("pay", None).with_metadata(fee=1), (("seen", {"n": 1}),)
        ),
        UnreportedOutcome(ToolResult.error_with_code("pay", "sold_out", "None are left.")),
        UnreportedOutcome(ToolResult.suspended("pay", ASKED)),
        UnreportedOutcome(None, (("seen", 1), ("seen", None))),
    ],
)
def test_an_outcome_survives_a_round_trip(outcome: UnreportedOutcome) -> None:
    assert outcome_from_json("pay", json.loads(json.dumps(outcome_to_json(outcome)))) == outcome


@pytest.mark.parametrize(
    "status, outcome, answered",
    [
        (CallStatus.RUNNING, None, False),
        (CallStatus.SUCCEEDED, None, True),
        (CallStatus.SUCCEEDED, UnreportedOutcome(ToolResult.success("pay", 1)), False),
        (CallStatus.SUCCEEDED, UnreportedOutcome(None, (("seen", 1),)), True),
        (CallStatus.SUSPENDED, UnreportedOutcome(ToolResult.suspended("pay", ASKED)), False),
    ],
)
def test_a_call_is_answered_once_its_result_is_reported(
    status: CallStatus, outcome: UnreportedOutcome | None, answered: bool
) -> None:
    state = CallState(
        call=ToolCall(CallId("c1"), "pay", {}),
        step_index=0,
        position=0,
        status=status,
        effect=Effect.UNSAFE,
        idempotency_key="run:0:c1",
        unreported_outcome=outcome,
    )
    assert state.is_answered is answered
