"""A waiting run shows its reason, and its tickets with their calls."""

from datetime import UTC, datetime

import pytest

from app.domain.ids import AgentId, CallId, RunId, ThreadId, TicketKey
from app.domain.json_values import JsonObject
from app.domain.runs.runs import WaitingReason, waiting_reason
from app.domain.threads.messages import ToolCall
from app.domain.tickets.decisions import Action
from app.domain.tickets.opening import allowed_actions, arguments_digest, ticket_for, ticket_name
from app.domain.tickets.ticket_json import waiting_to_json
from app.domain.tickets.tickets import Ticket, TicketKind
from app.domain.tools.tool_calls import CallState, CallStatus, Effect, ResumeMode, SuspensionRequest

AT = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


def suspended_call(id: str = "call-1", edited_arguments: JsonObject | None = None) -> CallState:
    return CallState(
        call=ToolCall(CallId(id), "transfer", {"amount": 5}),
        step_index=2,
        position=0,
        status=CallStatus.SUSPENDED,
        effect=Effect.UNSAFE,
        idempotency_key=f"run-1:2:{id}",
        edited_arguments=edited_arguments,
    )


def ticket_of(state: CallState, suspension: SuspensionRequest) -> Ticket:
    return ticket_for(
        state,
        suspension,
        id=TicketKey(f"key of {state.call.id}"),
        run_id=RunId("run-1"),
        thread_id=ThreadId("thread-1"),
        agent_id=AgentId("clerk"),
        name=ticket_name(suspension, state.call.id),
        kind=TicketKind.APPROVAL,
        at=AT,
    )


def asking(suspension_id: str | None, action: str = "approval") -> SuspensionRequest:
    return SuspensionRequest(
        message="Transfer 5?",
        action=action,
        resume_mode=ResumeMode.USE_DECISION_AS_TOOL_RESULT,
        suspension_id=suspension_id,
    )


def test_waiting_state_persists_suspended_tool_tickets() -> None:
    ticket = ticket_of(suspended_call(), asking("ticket-1"))

    shown = waiting_to_json(waiting_reason("suspended"), [ticket], "dispatch-1")

    assert shown == {
        "reason": "tool_permission",
        "tickets": [
            {
                "id": "key of call-1",
                "name": "ticket-1",
                "run_id": "run-1",
                "thread_id": "thread-1",
                "agent_id": "clerk",
                "kind": "approval",
                "tool_call_id": "call-1",
                "tool_name": "transfer",
                "tool_effect": "unsafe",
                "arguments": {"amount": 5},
                "args_digest": arguments_digest("transfer", {"amount": 5}),
                "resume_mode": "use_decision_as_tool_result",
                "allowed_actions": ["cancel", "reject", "respond"],
                "reason": "approval",
                "message": "Transfer 5?",
                "updated_at": "2030-01-02T03:04:05.000Z",
            }
        ],
        "since_dispatch_id": "dispatch-1",
    }


@pytest.mark.parametrize("suspension_id", [None, "", "  "])
def test_waiting_ticket_falls_back_to_tool_call_id_without_suspension_id(
    suspension_id: str | None,
) -> None:
    ticket = ticket_of(suspended_call("call-7"), asking(suspension_id))
    shown = waiting_to_json(WaitingReason.TOOL_PERMISSION, [ticket], "dispatch-1")
    assert shown["tickets"][0]["name"] == "call-7"
    assert shown["tickets"][0]["tool_call_id"] == "call-7"


def test_a_name_that_an_open_ticket_has_is_made_unique_by_the_call() -> None:
    assert ticket_name(asking("ask"), CallId("call-2"), used_names={"ask"}) == "ask:call-2"
    assert ticket_name(asking("ask"), CallId("call-2"), used_names={"other"}) == "ask"


@pytest.mark.parametrize(
    "named, taken, name",
    [
        (None, {"c1"}, "c1:2"),
        (None, {"c1", "c1:2"}, "c1:3"),
        ("suspend_c1", {"suspend_c1"}, "suspend_c1:2"),
        ("ask", {"ask", "ask:c1"}, "ask:c1:2"),
    ],
)
def test_a_call_that_asks_again_gets_a_name_that_was_never_used(
    named: str | None, taken: set[str], name: str
) -> None:
    assert ticket_name(asking(named), CallId("c1"), used_names=taken) == name


def test_tickets_are_listed_by_call_and_then_by_name() -> None:
    b = ticket_of(suspended_call("call-b"), asking("1"))
    a_late = ticket_of(suspended_call("call-a"), asking("z"))
    a_early = ticket_of(suspended_call("call-a"), asking("y"))
    shown = waiting_to_json(WaitingReason.TOOL_PERMISSION, [b, a_late, a_early], "dispatch-1")
    assert [each["name"] for each in shown["tickets"]] == ["y", "z", "1"]


def test_a_ticket_shows_the_effective_arguments() -> None:
    ticket = ticket_of(suspended_call(edited_arguments={"amount": 1}), asking("ticket-1"))
    assert ticket.arguments == {"amount": 1}
    assert ticket.args_digest == arguments_digest("transfer", {"amount": 1})


def test_the_digest_covers_tool_and_arguments_in_any_order_of_keys() -> None:
    assert arguments_digest("t", {"a": 1, "b": 2}) == arguments_digest("t", {"b": 2, "a": 1})
    assert arguments_digest("t", {"a": 1}) != arguments_digest("u", {"a": 1})
    assert arguments_digest("t", {"a": 1}) != arguments_digest("t", {"a": 2})


def test_a_blank_reason_is_no_reason() -> None:
    assert ticket_of(suspended_call(), asking("t", action="  ")).reason is None


def test_the_allowed_actions_depend_on_the_resume_mode() -> None:
    as_result = allowed_actions(TicketKind.APPROVAL, ResumeMode.USE_DECISION_AS_TOOL_RESULT)
    replay = allowed_actions(TicketKind.APPROVAL, ResumeMode.REPLAY_TOOL_CALL)
    unknown = allowed_actions(TicketKind.OUTCOME_UNKNOWN, ResumeMode.REPLAY_TOOL_CALL)
    assert as_result == {Action.RESPOND, Action.REJECT, Action.CANCEL}
    assert replay == as_result | {Action.APPROVE, Action.EDIT}
    assert unknown == {Action.APPROVE, Action.RESPOND, Action.CANCEL}


@pytest.mark.parametrize(
    ("emitted", "reason"),
    [
        ("awaiting_tasks", WaitingReason.BACKGROUND_TASKS),
        ("input_required", WaitingReason.USER_INPUT),
        ("user_input_required", WaitingReason.USER_INPUT),
        ("auth_required", WaitingReason.TOOL_PERMISSION),
        ("suspended", WaitingReason.TOOL_PERMISSION),
        ("rate_limit", WaitingReason.RATE_LIMIT),
        ("manual_pause", WaitingReason.MANUAL_PAUSE),
        ("anything else", WaitingReason.EXTERNAL_EVENT),
        (None, WaitingReason.EXTERNAL_EVENT),
    ],
)
def test_a_stored_reason_becomes_a_waiting_reason(
    emitted: str | None, reason: WaitingReason
) -> None:
    assert waiting_reason(emitted) is reason
