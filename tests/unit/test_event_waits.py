"""Calls that wait for events: by their tool or at their gate, until the event comes or its time is over."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.domain.errors import EventTimedOut
from app.domain.json_values import Json
from app.domain.runs.runs import Done, Waiting, WaitingReason
from app.domain.signals import EventWait
from app.domain.structs import replace
from app.domain.threads.messages import Role
from app.domain.tickets.decisions import Action, Decision, DecisionAnswer
from app.domain.tickets.tickets import TicketStatus
from app.domain.tools.tool_calls import ResumeMode
from app.llm.scripted.model import Call, turn
from app.runtime.plugins import HookView, Phase, Request, WaitFor
from app.runtime.ports.tool_context import ToolContext
from app.runtime.tool_calls.call_events import answered_wait, wait_request
from app.tools.functions.decorator import tool
from tests.support.hooks import Hooks
from tests.support.plain_runs import PlainRun
from tests.support.records import AT, a_ticket

pytestmark = pytest.mark.anyio

WAIT = EventWait(name="paid", key="order 1")


@tool(name="ship", effect="idempotent")
async def ship(ctx: ToolContext) -> Json:
    """Ship an order once it is paid."""
    try:
        first = await ctx.wait_for("paid", "order 1", timeout=60)
    except EventTimedOut as late:
        return f"not shipped: {late}"
    second = await ctx.wait_for("paid", "order 1")
    return [first, second]


@tool(name="pack", effect="idempotent")
async def pack() -> str:
    """Pack an order."""
    return "packed"


def results(run: PlainRun) -> list[str]:
    return [each.message.text for each in run.rows.log if each.message.role is Role.TOOL]


def waits(run: PlainRun) -> bool:
    state = run.rows.record.state
    return isinstance(state, Waiting) and state.reason is WaitingReason.EXTERNAL_EVENT


async def test_each_wait_of_a_tool_gets_its_own_event() -> None:
    run = PlainRun(turn(Call(tool="ship")), turn("Done."), tools=[ship])
    await run.start()
    assert waits(run)
    await run.answer(Action.RESPOND, result="first")
    assert waits(run)
    await run.answer(Action.RESPOND, result="second")
    assert isinstance(run.rows.record.state, Done)
    assert '["first","second"]' in results(run)[-1].replace(" ", "")
    assert len(run.requests) == 2


async def test_a_tool_learns_that_its_event_did_not_come() -> None:
    run = PlainRun(turn(Call(tool="ship")), turn("Done."), tools=[ship])
    await run.start()
    expire(run)
    await run.execute()
    assert (
        "not shipped: The event 'paid' with the key 'order 1' did not come in time"
        in (results(run)[-1])
    )


def gate_that_waits() -> Hooks:
    def answer(view: HookView) -> Sequence[Request]:
        return (WaitFor(name="paid", key="order 1"),)

    return Hooks({Phase.TOOL_GATE: answer})


async def test_a_call_whose_event_did_not_come_at_the_gate_is_not_made() -> None:
    run = PlainRun(
        turn(Call(tool="pack")), turn("Done."), tools=[pack], plugins=[gate_that_waits().plugin]
    )
    await run.start()
    assert waits(run)
    expire(run)
    await run.execute()
    assert isinstance(run.rows.record.state, Done)
    assert "did not come in time" in results(run)[-1]
    assert "packed" not in results(run)[-1]
    assert len(run.events("tool_call_resumed")) == 1


async def test_a_call_runs_once_the_gate_has_its_event() -> None:
    seen: list[object] = []

    class Waiter(Hooks):
        async def _hook(self, view: HookView) -> Sequence[Request]:
            event = await view.received("paid", "order 1")
            seen.append(event and event.payload)
            other = await view.received("paid", "order 2")
            assert other is None
            return () if event else (WaitFor(name="paid", key="order 1"),)

    plugin = Waiter({Phase.TOOL_GATE: lambda _: ()}).plugin
    run = PlainRun(turn(Call(tool="pack")), turn("Done."), tools=[pack], plugins=[plugin])
    await run.start()
    assert waits(run)
    await run.answer(Action.RESPOND, result={"sum": 1})
    assert isinstance(run.rows.record.state, Done)
    assert "packed" in results(run)[-1]
    assert seen == [None, {"sum": 1}]


def expire(run: PlainRun) -> None:
    [ticket] = run.rows.open_tickets
    run.system.tickets[ticket.id] = replace(ticket, status=TicketStatus.EXPIRED)


# --- tickets of waits -----------------------------------------------------------------------------


def decided(action: Action, **of_ticket: Any) -> Any:
    decision = Decision(decision_id="d", answer=DecisionAnswer(action=action), subject="ann", at=AT)
    return a_ticket(decision=decision, status=TicketStatus.DECIDED, **of_ticket)


@pytest.mark.parametrize(
    "change",
    [
        {"event": None},
        {"event": replace(WAIT, name="sent")},
        {"event": replace(WAIT, key="order 2")},
        {"event": replace(WAIT, number=1)},
        {"resume_mode": ResumeMode.REPLAY_TOOL_CALL},
        {"status": TicketStatus.OPEN},
        {"status": TicketStatus.VOID},
    ],
)
def test_a_wait_finds_only_its_own_answered_ticket(change: dict[str, Any]) -> None:
    request = wait_request(WAIT, None, ResumeMode.PASS_DECISION_TO_TOOL)
    fitting = decided(Action.RESPOND, event=WAIT, resume_mode=ResumeMode.PASS_DECISION_TO_TOOL)
    expired = replace(fitting, status=TicketStatus.EXPIRED)
    assert answered_wait([replace(fitting, **change)], request) is None
    assert answered_wait([replace(fitting, **change), fitting], request) is fitting
    assert answered_wait([expired], request) is expired
