"""Budgets count tool calls when they begin, and refuse calls over the limit."""

import pytest

from app.domain.ids import CallId
from app.domain.runs.limits import RAISED, USED, Limit
from app.domain.runs.runs import LIFECYCLE
from app.runtime.usage import UsageMeter
from tests.support.records import a_record

C1, C2, C3 = CallId("c1"), CallId("c2"), CallId("c3")


def budget(tool_calls: int | None, made: int = 0) -> UsageMeter:
    limits = {} if tool_calls is None else {"limits": {"tool_calls": tool_calls}}
    state = {"extensions": {USED: {"tool_calls": made}}} if made else None
    return UsageMeter(a_record(request=limits, run_state=state))


def test_calls_are_reserved_up_to_the_limit() -> None:
    meter = budget(2)
    assert [meter.reserve_call(call) for call in (C1, C2, C3)] == [True, True, False]


def test_a_reservation_counts_once_per_call() -> None:
    meter = budget(1)
    assert meter.reserve_call(C1)
    assert meter.reserve_call(C1)
    assert not meter.reserve_call(C2)


def test_calls_that_were_made_count_against_the_limit() -> None:
    assert not budget(2, made=2).reserve_call(C1)
    assert budget(2, made=1).reserve_call(C1)
    assert budget(None, made=99).reserve_call(C1)


def test_a_call_counts_once_when_it_begins() -> None:
    meter = budget(3)
    meter.reserve_call(C1)
    meter.reserve_call(C2)
    meter.begin([C1, C3])
    assert meter.tool_calls == 1
    meter.begin([C1])
    assert meter.tool_calls == 1
    assert meter.reserve_call(C3)
    assert not meter.reserve_call(CallId("c4"))


def test_a_raise_lets_more_calls_be_made() -> None:
    meter = budget(1, made=1)
    assert not meter.reserve_call(C1)
    meter.raise_limit(Limit.TOOL_CALLS, 1)
    assert meter.reserve_call(C1)
    assert meter.to_state() == {RAISED: {"tool_calls": 2}, USED: {"tool_calls": 1}}


def test_a_budget_stores_only_what_was_used() -> None:
    assert budget(5).to_state() == {}
    assert budget(5, made=4).to_state() == {USED: {"tool_calls": 4}}


@pytest.mark.parametrize("lost, lost_ms", [(0.0, 0), (1.5, 1500), (60.0, 60_000)])
def test_time_of_lost_workers_is_counted_in_milliseconds(lost: float, lost_ms: int) -> None:
    record = a_record(lost_seconds=lost, run_state={"extensions": {LIFECYCLE: {"active_ms": 2000}}})
    meter = UsageMeter(record)
    assert (meter.lost_ms, meter.seconds_before) == (lost_ms, 2.0 + lost)
