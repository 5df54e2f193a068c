"""Limit tickets: what they ask, what a decision grants, and how a run without a raise ends."""

from typing import Any

import pytest

from app.domain.ids import AgentId, TicketKey
from app.domain.json_values import Json
from app.domain.runs.limits import (
    RAISED,
    USED,
    Limit,
    OnLimit,
    RunLimits,
    Used,
    exhausted,
    limit_sentence,
    limits_in_request,
    limits_of,
    used_by,
)
from app.domain.runs.runs import LIFECYCLE, Usage
from app.domain.runs.terminations import Stopped
from app.domain.structs import replace
from app.domain.tickets.decisions import Action, Decision, DecisionAnswer
from app.domain.tickets.limit_tickets import (
    limit_of,
    limit_ticket,
    raise_granted,
    reason_not_raised,
)
from app.domain.tickets.terms import NO_TERMS
from app.domain.tickets.tickets import Ticket, TicketKind
from tests.support.records import AT, a_record


def question(limit: Limit, limits: RunLimits, used: Used, *taken: str) -> Ticket:
    return limit_ticket(
        a_record(),
        limit,
        limits,
        used,
        id=TicketKey("key"),
        agent_id=AgentId("clerk"),
        step_index=3,
        used_names=taken,
        terms=NO_TERMS,
        at=AT,
    )


def answered(action: Action, **more: Any) -> Ticket:
    ticket = question(Limit.STEPS, RunLimits({Limit.STEPS: 2}), Used(steps=2))
    answer = DecisionAnswer(action=action, **more)
    decision = Decision(decision_id="d", answer=answer, subject="ann", at=AT)
    return replace(ticket, decision=decision)


def test_a_ticket_shows_the_limit_and_proposes_its_own_size() -> None:
    limits = RunLimits({Limit.STEPS: 2}, OnLimit.ASK, {Limit.STEPS: 6})
    ticket = question(
        Limit.STEPS, limits, Used(steps=9, tokens=4, tool_calls=1, wall_seconds=1.23456)
    )
    assert ticket.arguments == {"limit": "steps", "allowed": 6, "used": 9, "raise_by": 4}
    assert ticket.message == "The run may go no further: 9 of 6 steps were used"
    assert ticket.evidence == {
        "steps": 9,
        "tokens": 4,
        "tool_calls": 1,
        "wall_seconds": 1.235,
        "cost_usd": 0.0,
    }
    assert (ticket.kind, ticket.call_id, ticket.step_index) == (TicketKind.LIMIT, None, 3)
    assert limit_of(ticket) is Limit.STEPS


def test_an_unset_limit_is_raised_from_zero_by_one() -> None:
    ticket = question(Limit.TOOL_CALLS, RunLimits(), Used(tool_calls=2))
    assert ticket.arguments == {"limit": "tool_calls", "allowed": 0, "used": 2, "raise_by": 3}


def test_the_name_of_a_ticket_is_not_taken() -> None:
    limits = RunLimits({Limit.TOKENS: 1})
    assert question(Limit.TOKENS, limits, Used()).name == "limit_tokens"
    second = question(Limit.TOKENS, limits, Used(), "limit_tokens")
    assert second.name == "limit_tokens:2"
    third = question(Limit.TOKENS, limits, Used(), "limit_tokens", "limit_tokens:2")
    assert third.name == "limit_tokens:3"


@pytest.mark.parametrize("limit", list(Limit))
def test_a_decision_about_a_limit_may_contain_a_raise_only(limit: Limit) -> None:
    schema = question(limit, RunLimits({limit: 1}), Used()).response_schema
    assert schema is not None
    amount: dict[str, Json] = {"type": "integer", "minimum": 1, "maximum": 10**12}
    if limit in (Limit.WALL_SECONDS, Limit.COST_USD):
        amount = {"type": "number", "exclusiveMinimum": 0, "maximum": 10**12}
    assert schema == {
        "type": "object",
        "properties": {"raise_by": amount},
        "required": ["raise_by"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    "action, more, granted",
    [
        (Action.APPROVE, {}, 2),
        (Action.APPROVE, {"arguments": {"raise_by": 9}, "result": {"raise_by": 8}}, 2),
        (Action.EDIT, {"arguments": {"raise_by": 5}}, 5),
        (Action.RESPOND, {"result": {"raise_by": 7}}, 7),
        (Action.REJECT, {}, None),
        (Action.CANCEL, {}, None),
    ],
)
def test_an_answer_grants_a_raise_or_none(
    action: Action, more: dict[str, Any], granted: int | None
) -> None:
    assert raise_granted(answered(action, **more)) == granted


def test_a_ticket_without_an_answer_grants_none() -> None:
    ticket = question(Limit.STEPS, RunLimits({Limit.STEPS: 2}), Used(steps=2))
    assert raise_granted(ticket) is None
    assert reason_not_raised(ticket) == ", and no decision came in time"


def test_the_termination_names_why_no_raise_was_granted() -> None:
    assert reason_not_raised(answered(Action.REJECT)) == ", and no more was granted"
    rejected = answered(Action.REJECT, reason="too dear")
    assert reason_not_raised(rejected) == ", and no more was granted: too dear"


@pytest.mark.parametrize(
    "limit, used, allowed, words",
    [
        (Limit.STEPS, 3, 2, "3 of 2 steps were used"),
        (Limit.TOOL_CALLS, 1, 1, "1 of 1 tool calls were used"),
        (Limit.TOKENS, 12, 10, "12 of 10 tokens were used"),
        (Limit.WALL_SECONDS, 1.26, 1.0, "1.3 of 1 seconds of executing were used"),
        (Limit.COST_USD, 0.5, 0.25, "$0.50 of $0.25 were used"),
        (Limit.COST_USD, 0.000123, 0.0001, "$0.000123 of $0.0001 were used"),
    ],
)
def test_a_run_at_its_limit_names_what_it_used(
    limit: Limit, used: float, allowed: float, words: str
) -> None:
    assert limit_sentence(limit, used, allowed) == words
    assert exhausted(limit, used, allowed) == Stopped(f"limit_{limit.value}", words)
    assert exhausted(limit, used, allowed, ", sadly") == Stopped(
        f"limit_{limit.value}", f"{words}, sadly"
    )


@pytest.mark.parametrize(
    "limit, amount",
    [
        (Limit.STEPS, 1),
        (Limit.TOKENS, 2),
        (Limit.TOOL_CALLS, 3),
        (Limit.WALL_SECONDS, 4.5),
        (Limit.COST_USD, 0.7),
    ],
)
def test_each_limit_has_a_counter_of_its_own(limit: Limit, amount: float) -> None:
    used = Used(steps=1, tokens=2, tool_calls=3, wall_seconds=4.5, cost_usd=0.7)
    assert used.of(limit) == amount
    assert Used().of(limit) == 0


def test_a_raise_of_a_limit_that_isnt_set_begins_at_nothing() -> None:
    assert RunLimits().raised_by(Limit.STEPS, 3).of(Limit.STEPS) == 3
    assert RunLimits().of(Limit.STEPS) is None


def test_limits_are_read_from_the_request_and_the_state_of_a_run() -> None:
    record = a_record(
        request=limits_in_request({"steps": 2, "tokens": 9}, OnLimit.ASK),
        run_state={"extensions": {RAISED: {"steps": 5}}},
    )
    found = limits_of(record)
    assert found == RunLimits({Limit.STEPS: 2, Limit.TOKENS: 9}, OnLimit.ASK, {Limit.STEPS: 5})
    assert (found.of(Limit.STEPS), found.of(Limit.TOKENS)) == (5, 9)
    assert limits_of(a_record()) == RunLimits()
    assert limits_in_request({}, OnLimit.ASK) == {}


def test_counters_are_read_from_the_row_and_the_state_of_a_run() -> None:
    record = a_record(
        steps=4,
        usage=Usage(10, 20),
        lost_seconds=3.5,
        run_state={
            "extensions": {USED: {"tool_calls": 6}, LIFECYCLE: {"active_ms": 2000, "lost_ms": 1500}}
        },
    )
    assert used_by(record) == Used(steps=4, tokens=30, tool_calls=6, wall_seconds=4.0)
    assert used_by(a_record()) == Used()


def test_time_that_is_counted_already_is_not_counted_twice() -> None:
    state = {"extensions": {LIFECYCLE: {"active_ms": 1000, "lost_ms": 9000}}}
    assert used_by(a_record(lost_seconds=2.0, run_state=state)).wall_seconds == 1.0
    assert used_by(a_record(lost_seconds=2.0)).wall_seconds == 2.0
