"""Results and states of calls: what models, clients and rows get of them."""

from typing import Any

import pytest

from app.domain.ids import CallId, MessageId, RunId
from app.domain.json_values import Json, JsonObject
from app.domain.threads.messages import Role, ToolCall
from app.domain.tools.tool_calls import (
    CallState,
    CallStatus,
    Effect,
    ResultStatus,
    SuspensionRequest,
    ToolDescriptor,
    ToolResult,
    UnreportedOutcome,
    idempotency_key,
    result_of_response,
)

OK = ToolResult.success("pay", {"paid": 5})


@pytest.mark.parametrize(
    "result, text",
    [
        (OK, '{"paid":5}'),
        (ToolResult.success("pay", "paid"), "paid"),
        (ToolResult.success("pay", "paid", ""), ""),
        (ToolResult.success("pay", 1, "Done."), "Done."),
        (ToolResult.success("pay", None), "null"),
        (ToolResult.error("pay", "no money"), "no money"),
        (ToolResult.error_with_code("pay", "empty", "no money"), "[empty] no money"),
    ],
)
def test_a_model_reads_the_message_else_the_data(result: ToolResult, text: str) -> None:
    assert result.text == text
    message = result.as_message(MessageId("m"), CallId("c1"), {"a": 1})
    assert (message.text, message.role, message.tool_call_id) == (text, Role.TOOL, "c1")
    assert message.ran_with == {"a": 1}


@pytest.mark.parametrize(
    "result, payload",
    [
        (OK, {"paid": 5}),
        (OK.with_metadata(a=1), {"data": {"paid": 5}, "metadata": {"a": 1}}),
        (ToolResult.error("pay", "no"), {"error": "no"}),
        (ToolResult.error("pay", "no").with_metadata(a=1), {"error": "no", "metadata": {"a": 1}}),
        (ToolResult("pay", ResultStatus.ERROR, "data"), "data"),
        (
            ToolResult("pay", ResultStatus.ERROR, 1, metadata={"a": 1}),
            {"data": 1, "metadata": {"a": 1}},
        ),
        (ToolResult.suspended("pay", SuspensionRequest("May I?")), None),
    ],
)
def test_a_client_is_shown_what_a_resumed_call_came_to(result: ToolResult, payload: Json) -> None:
    assert result.resumed_payload() == payload


def test_metadata_adds_up_and_is_shown_only_when_there_is_some() -> None:
    both = OK.with_metadata(a=1).with_metadata(b=2, a=3)
    assert both.metadata == {"a": 3, "b": 2}
    assert both.to_json()["metadata"] == {"a": 3, "b": 2}
    assert OK.to_json() == {
        "tool_name": "pay",
        "status": "success",
        "data": {"paid": 5},
        "message": None,
    }


def test_an_error_may_be_retried_unless_it_says_otherwise() -> None:
    assert ToolResult.error("pay", "no").may_be_retried
    assert ToolResult.error_with_code("pay", "x", "no").may_be_retried
    assert not ToolResult.error("pay", "no", may_be_retried=False).may_be_retried
    coded = ToolResult.error_with_code("pay", "x", "no", may_be_retried=False)
    assert not coded.may_be_retried
    assert ToolResult.error("pay", "no") == ToolResult.error("pay", "no", may_be_retried=False)


@pytest.mark.parametrize(
    "response, status",
    [
        ({"error": "no"}, ResultStatus.ERROR),
        ({"error": "no", "paid": 0}, ResultStatus.SUCCESS),
        ({}, ResultStatus.SUCCESS),
        (None, ResultStatus.SUCCESS),
        ("error", ResultStatus.SUCCESS),
    ],
)
def test_a_response_is_an_error_when_it_says_only_that(
    response: Json, status: ResultStatus
) -> None:
    result = result_of_response("pay", response)
    assert result.status is status
    if status is ResultStatus.ERROR:
        assert result.text == "no"
    else:
        assert result.data == response


def test_a_tool_is_unsafe_tried_once_and_run_here_unless_it_says_otherwise() -> None:
    descriptor = ToolDescriptor(name="pay", description="", parameters={})
    assert (descriptor.effect, descriptor.retries) == (Effect.UNSAFE, 0)
    assert not descriptor.is_frontend


@pytest.mark.parametrize("effect", list(Effect))
def test_only_an_unsafe_call_may_not_be_run_again(effect: Effect) -> None:
    assert effect.may_be_rerun is (effect is not Effect.UNSAFE)


def a_state(**more: Any) -> CallState:
    kept: dict[str, Any] = {
        "call": ToolCall(CallId("c1"), "pay", {"amount": 5}),
        "step_index": 0,
        "position": 0,
        "status": CallStatus.RUNNING,
        "effect": Effect.UNSAFE,
        "idempotency_key": idempotency_key(RunId("run"), 0, CallId("c1")),
        **more,
    }
    return CallState(**kept)


@pytest.mark.parametrize(
    "run_with, effective", [(None, {"amount": 5}), ({}, {}), ({"amount": 1}, {"amount": 1})]
)
def test_an_edit_takes_the_place_of_the_models_arguments(
    run_with: JsonObject | None, effective: JsonObject
) -> None:
    assert a_state(run_with=run_with).effective_arguments == effective


def test_a_call_is_answered_when_it_is_over_and_its_result_is_in_the_log() -> None:
    done = {"status": CallStatus.SUCCEEDED}
    assert a_state(**done).is_answered
    assert a_state(**done, unreported_outcome=UnreportedOutcome(None)).is_answered
    assert not a_state(**done, unreported_outcome=UnreportedOutcome(OK)).is_answered
    assert not a_state(unreported_outcome=UnreportedOutcome(OK)).is_answered
    assert not a_state().is_answered
    assert a_state(unreported_outcome=UnreportedOutcome(OK)).unreported_result == OK
    assert a_state().unreported_result is None


def test_the_key_of_a_call_names_run_step_and_call() -> None:
    assert a_state().idempotency_key == "run:0:c1"
