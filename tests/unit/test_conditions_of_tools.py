"""`@tool(approval=…)`: which calls a tool lets run, which wait for a person, and what a remembered rule changes."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.domain.ids import AgentId, CallId
from app.domain.rules.parser import exact_pattern
from app.domain.rules.rules import Behavior, Rule
from app.domain.runs.runs import Done
from app.domain.tickets.decisions import Action
from app.domain.tickets.tickets import TicketKind
from app.llm.scripted.model import Call, turn
from app.runtime.active_run import ActiveRun
from app.tools.functions.decorator import tool
from tests.support.plain_runs import PlainRun

pytestmark = pytest.mark.anyio


class Remembered:
    """One rule that a person's decision has made."""

    def __init__(self, behavior: Behavior) -> None:
        self._rule = Rule(pattern=exact_pattern("refund"), behavior=behavior, reason="as agreed")

    async def for_calls_of(self, agent_id: AgentId) -> Sequence[Rule]:
        return [self._rule]


class Refunds:
    """A run with one call of a tool whose refunds above 50 need approval."""

    def __init__(self, amount: float, behavior: Behavior | None = None) -> None:
        self.paid: list[float] = []

        @tool(approval="amount > 50")
        async def refund(amount: float) -> str:
            self.paid.append(amount)
            return "paid"

        call = Call(tool="refund", arguments={"amount": amount}, id=CallId("c1"))
        self.run = PlainRun(turn(call), turn("Done."), tools=[refund])
        if behavior is not None:
            self.run.before_it_executes = lambda run: _remember(run, behavior)

    @property
    def result(self) -> str:
        assert isinstance(self.run.rows.record.state, Done)
        return [text for role, text in self.run.texts if role == "tool"][-1]


def _remember(run: ActiveRun, behavior: Behavior) -> None:
    run.remembered = Remembered(behavior)


async def test_a_call_below_the_condition_runs_at_once() -> None:
    refunds = Refunds(50)
    await refunds.run.start()
    assert (refunds.result, refunds.paid) == ("paid", [50])


@pytest.mark.parametrize(
    ("action", "more", "paid"),
    [
        (Action.APPROVE, {}, [60]),
        (Action.EDIT, {"arguments": {"amount": 70}}, [70]),
        (Action.REJECT, {}, []),
    ],
)
@pytest.mark.parametrize("behavior", [None, Behavior.ASK])
async def test_a_call_above_the_condition_waits_for_one_approval(
    behavior: Behavior | None, action: Action, more: dict[str, Any], paid: list[float]
) -> None:
    refunds = Refunds(60, behavior)
    await refunds.run.start()
    [ticket] = refunds.run.rows.open_tickets
    assert (ticket.kind, ticket.name) == (TicketKind.APPROVAL, "perm_c1")
    assert refunds.paid == []
    await refunds.run.answer(action, **more)
    assert isinstance(refunds.run.rows.record.state, Done)
    assert refunds.paid == paid


@pytest.mark.parametrize(
    ("behavior", "amount", "result", "paid"),
    [
        (Behavior.ALLOW, 60, "paid", [60]),
        (Behavior.DENY, 60, "as agreed", []),
        (Behavior.DENY, 50, "paid", [50]),
    ],
)
async def test_a_remembered_rule_decides_about_calls_above_the_condition(
    behavior: Behavior, amount: float, result: str, paid: list[float]
) -> None:
    refunds = Refunds(amount, behavior)
    await refunds.run.start()
    assert result in refunds.result
    assert refunds.paid == paid
    assert not refunds.run.rows.tickets
