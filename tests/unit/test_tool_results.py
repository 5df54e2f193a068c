"""Results and states of calls, as models, clients and rows get them."""

from typing import Any

import pytest

from app.domain.ids import CallId, MessageId, RunId
from app.domain.json_values import Json, JsonObject
from app.domain.threads.messages import Role, ToolCall, message_to_json
from app.domain.tools.tool_calls import (
    CallState,
    CallStatus,
    Effect,
    ResultStatus,
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
    message = result.as_message(MessageId("m"), CallId("c1"), CallStatus.FAILED, {"a": 1})
    assert (message.text, message.role, message.tool_call_id) == (text, Role.TOOL, "c1")
    assert message.edited_arguments == {"a": 1}


@pytest.mark.parametrize(
    "result, more",
    [
        (OK, {"data": {"paid": 5}}),
        (OK.with_metadata(a=1), {"data": {"paid": 5}, "metadata": {"a": 1}}),
        (ToolResult.success("pay", "paid"), {}),
        (ToolResult.success("pay", "paid", "Done."), {"data": "paid"}),
        (ToolResult.success("pay", 0), {"data": 0}),
        (ToolResult.success("pay", None), {}),
        (ToolResult.error("pay", "no").with_metadata(a=1), {"metadata": {"a": 1}}),
        (
            ToolResult.error_with_code("pay", "empty", "no money"),
            {"data": {"error": {"code": "empty", "message": "no money"}}},
        ),
    ],
)
def test_events_and_the_log_show_a_result_in_the_same_shape(
    result: ToolResult, more: dict[str, Json]
) -> None:
    shown = {"status": "done", "outcome": "succeeded", "text": result.text, **more}
    assert result.to_json(CallStatus.SUCCEEDED) == shown
    message = result.as_message(MessageId("m"), CallId("c1"), CallStatus.SUCCEEDED)
    assert message_to_json(message)["result"] == shown


def test_metadata_adds_up() -> None:
    both = OK.with_metadata(a=1).with_metadata(b=2, a=3)
    assert both.metadata == {"a": 3, "b": 2}


def test_an_error_is_retryable_by_default() -> None:
    assert ToolResult.error("pay", "no").may_be_retried
    assert ToolResult.error_with_code("pay", "x", "no").may_be_retried
    assert not ToolResult.error("pay", "no", may_be_retried=False).may_be_retried
    coded = ToolResult.error_with_code("pay", "x", "no", may_be_retried=False)
    assert not coded.may_be_retried


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
def test_a_response_with_only_an_error_is_an_error_result(
    response: Json, status: ResultStatus
) -> None:
    result = result_of_response("pay", response)
    assert result.status is status
    if status is ResultStatus.ERROR:
        assert result.text == "no"
    else:
        assert result.data == response


def test_a_tool_is_unsafe_without_retries_and_local_by_default() -> None:
    descriptor = ToolDescriptor(name="pay", description="", parameters={})
    assert (descriptor.effect, descriptor.retries) == (Effect.UNSAFE, 0)
    assert not descriptor.is_frontend


@pytest.mark.parametrize("effect", list(Effect))
def test_only_an_unsafe_call_may_not_be_rerun(effect: Effect) -> None:
    assert effect.may_be_rerun is (effect is not Effect.UNSAFE)


def a_state(**more: Any) -> CallState:
    fields: dict[str, Any] = {
        "call": ToolCall(CallId("c1"), "pay", {"amount": 5}),
        "step_index": 0,
        "position": 0,
        "status": CallStatus.RUNNING,
        "effect": Effect.UNSAFE,
        "idempotency_key": idempotency_key(RunId("run"), 0, CallId("c1")),
        **more,
    }
    return CallState(**fields)


@pytest.mark.parametrize(
    "edited_arguments, effective", [(None, {"amount": 5}), ({}, {}), ({"amount": 1}, {"amount": 1})]
)
def test_an_edit_replaces_the_arguments_of_the_model(
    edited_arguments: JsonObject | None, effective: JsonObject
) -> None:
    assert a_state(edited_arguments=edited_arguments).effective_arguments == effective


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
