"""Approval by the tool itself: `@tool(approval=…)`, `ctx.approve` and `ctx.ask`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.commands.tickets.decision_types import DecisionRequest
from app.domain.errors import Conflict, Invalid
from app.domain.ids import CallId
from app.domain.rules.remembered import Match, Remember, RuleScope
from app.domain.tickets.decisions import Action, DecisionAnswer
from app.domain.tickets.tickets import Ticket, TicketKind
from app.llm.scripted.model import Call, in_order, turn
from app.runtime.ports.tools import Tool
from holdfast import ApprovalGiven, DecisionRejected, QuestionInvalid, ToolContext, tool
from tests.support.replicas import Run, an_agent, open_replica, types_of

pytestmark = pytest.mark.anyio


def refunding(amount: float, *, tool_name: str = "refund", id: str = "c1") -> Call:
    return Call(tool=tool_name, arguments={"amount": amount}, id=CallId(id))


async def result_of(run: Run, call_id: str = "c1") -> str:
    texts = [
        entry.message.text for entry in await run.log() if entry.message.tool_call_id == call_id
    ]
    return texts[-1]


async def the_ticket(run: Run) -> Ticket:
    [ticket] = [each for each in await run.tickets() if each.decision is None]
    return ticket


def one_call(call: Call) -> Any:
    return in_order(turn(call), turn("done"))


@asynccontextmanager
async def suspended_run(url: str, refund: Tool) -> AsyncIterator[Run]:
    """A run that suspends in its only call: it refunds 80."""
    async with open_replica(url, an_agent(refund), one_call(refunding(80))) as replica:
        run = await replica.start()
        await run.finished()
        yield run


# --- before the call runs -------------------------------------------------------------------------


class Refunds:
    """A tool that notes the amounts that it paid."""

    def __init__(self, approval: Any) -> None:
        self.paid: list[float] = []

        @tool(approval=approval)
        async def refund(amount: float) -> str:
            """Pay money back."""
            self.paid.append(amount)
            return f"paid {amount}"

        self.tool: Tool = refund


async def above_fifty(arguments: dict[str, Any], ctx: ToolContext) -> str | None:
    amount = arguments["amount"]
    return f"{ctx.run.started_by} refunds {amount}?" if amount > 50 else None


def broken(arguments: dict[str, Any]) -> bool:
    raise LookupError("no such order")


@pytest.mark.parametrize(
    ("approval", "amount", "question"),
    [
        (True, 1.0, "Tool 'refund' suspended: awaiting approval"),
        ("amount > 50", 50.0, None),
        ("amount > 50", 80.0, "Tool 'refund' suspended: awaiting approval"),
        (lambda arguments: arguments["amount"] > 50, 50.0, None),
        (lambda a, ctx: a["amount"] > 50, 80.0, "Tool 'refund' suspended: awaiting approval"),
        (above_fifty, 50.0, None),
        (above_fifty, 80.0, "ann refunds 80.0?"),
        (broken, 1.0, "Tool 'refund' suspended: awaiting approval"),
        (lambda arguments: "", 1.0, "Tool 'refund' suspended: awaiting approval"),
        (lambda arguments: object(), 1.0, "Tool 'refund' suspended: awaiting approval"),
    ],
)
async def test_a_tool_says_which_of_its_calls_need_approval(
    database_url: str, approval: Any, amount: float, question: str | None
) -> None:
    refunds = Refunds(approval)
    async with open_replica(
        database_url, an_agent(refunds.tool), one_call(refunding(amount))
    ) as replica:
        run = await replica.start()
        await run.finished()
        if question is None:
            assert await run.tickets() == []
        else:
            assert refunds.paid == []
            ticket = await the_ticket(run)
            assert (ticket.kind, ticket.message) == (TicketKind.APPROVAL, question)
            await run.decide(ticket.name, "approve")
            await run.finished(2)
        assert await result_of(run) == f"paid {amount}"
    assert refunds.paid == [amount]


async def test_a_rule_of_the_file_does_not_lift_it_and_a_remembered_one_does(
    database_url: str,
) -> None:
    refunds = Refunds("amount > 50")
    table = {"default": "allow", "rules": [{"tool": "refund", "behavior": "allow"}]}
    agent = an_agent(refunds.tool, plugin_tables={"permission": table})
    script = in_order(
        turn(refunding(60)),
        turn(refunding(70, id="c2")),
        turn(refunding(40, id="c3")),
        turn("done"),
    )
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        remembering = DecisionRequest(
            ticket="perm_c1",
            answer=DecisionAnswer(action=Action.APPROVE),
            decision_id=None,
            args_digest=None,
            remember=Remember(RuleScope.RUN, Match.TOOL),
        )
        await run.decide_all(remembering)
        await run.finished(2)
    assert refunds.paid == [60, 70, 40]


# --- inside the tool ------------------------------------------------------------------------------


class Asking:
    """A tool that asks inside, and notes what it began and what it did."""

    def __init__(self) -> None:
        self.begun: list[float] = []
        self.paid: list[float] = []
        self.approvals: list[ApprovalGiven] = []
        self.keys: set[str] = set()

        @tool
        async def refund(amount: float, ctx: ToolContext) -> str:
            """Pay money back."""
            self.begun.append(amount)
            self.keys.add(ctx.idempotency_key)
            if amount > 50:
                self.approvals.append(await ctx.approve(f"Refund {amount:g}?"))
            self.paid.append(amount)
            return f"paid {amount:g}"

        self.tool: Tool = refund


async def test_approve_suspends_once_and_returns_the_decision(database_url: str) -> None:
    asking = Asking()
    script = in_order(turn(refunding(50)), turn(refunding(80, id="c2")), turn("done"))
    async with open_replica(database_url, an_agent(asking.tool), script) as replica:
        run = await replica.start()
        await run.finished()
        ticket = await the_ticket(run)
        assert (ticket.kind, ticket.message) == (TicketKind.APPROVAL, "Refund 80?")
        assert ticket.arguments == {"amount": 80}
        assert ticket.allowed_actions == {
            Action.APPROVE,
            Action.EDIT,
            Action.REJECT,
            Action.CANCEL,
        }
        assert asking.paid == [50]
        await run.decide(ticket.name, "approve", reason="it was broken")
        emitted = await run.finished(2)
        assert await result_of(run, "c2") == "paid 80"
        [ticket] = await run.tickets()
        assert ticket.applied_at is not None
    assert types_of(emitted).count("ticket_opened") == 1
    assert (asking.begun, asking.paid) == ([50, 80, 80], [50, 80])
    assert len(asking.keys) == 2
    [approval] = asking.approvals
    assert (approval.decided_by, approval.reason) == ("ann", "it was broken")
    assert approval.arguments is None
    assert ticket.decision is not None
    assert approval.decided_at == ticket.decision.at


async def test_edited_arguments_are_those_of_the_call_that_returns(database_url: str) -> None:
    asking = Asking()
    async with suspended_run(database_url, asking.tool) as run:
        await run.decide((await the_ticket(run)).name, "edit", arguments={"amount": 60})
        await run.finished(2)
        assert await result_of(run) == "paid 60"
    assert (asking.begun, asking.paid) == ([80, 60], [60])
    assert [each.arguments for each in asking.approvals] == [{"amount": 60}]


async def test_a_rejection_ends_the_call_with_its_reason(database_url: str) -> None:
    asking = Asking()
    async with suspended_run(database_url, asking.tool) as run:
        await run.decide((await the_ticket(run)).name, "reject", reason="too much")
        emitted = await run.finished(2)
        assert await result_of(run) == "Denied: too much"
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert asking.paid == []


async def test_a_tool_may_catch_a_rejection_and_continue(database_url: str) -> None:
    seen: list[DecisionRejected] = []

    @tool
    async def refund(amount: float, ctx: ToolContext) -> str:
        """Pay money back."""
        try:
            await ctx.approve("All of it?")
        except DecisionRejected as rejected:
            seen.append(rejected)
            await ctx.approve("Half of it?")
            return "paid half"
        return "paid all"

    async with suspended_run(database_url, refund) as run:
        await run.decide((await the_ticket(run)).name, "reject", reason="too much")
        await run.finished(2)
        ticket = await the_ticket(run)
        assert ticket.message == "Half of it?"
        await run.decide(ticket.name, "approve")
        await run.finished(3)
        assert await result_of(run) == "paid half"
    assert {(str(each), each.reason, each.decided_by) for each in seen} == {
        ("Denied: too much", "too much", "ann")
    }


async def test_an_expired_approval_is_no_approval(database_url: str) -> None:
    asking = Asking()
    agent = an_agent(asking.tool, ticket_expires_in=0.2)
    async with open_replica(database_url, agent, one_call(refunding(80))) as replica:
        run = await replica.start()
        await run.finished(2)
        assert await result_of(run) == "Expired: no decision came in time"
    assert asking.paid == []


async def test_a_cancelled_approval_does_not_call_the_tool_again(database_url: str) -> None:
    asking = Asking()
    async with suspended_run(database_url, asking.tool) as run:
        await run.decide((await the_ticket(run)).name, "cancel", reason="not now")
        await run.finished(2)
    assert asking.begun == [80]


async def test_ask_returns_an_answer_that_fits_the_schema(database_url: str) -> None:
    @tool(effect="idempotent")
    async def refund(amount: float, ctx: ToolContext) -> str:
        """Pay money back."""
        account = await ctx.ask("Which account?", {"type": "string", "minLength": 3})
        await ctx.approve(f"Refund {amount:g} to {account}?")
        return f"paid to {account}"

    async with suspended_run(database_url, refund) as run:
        ticket = await the_ticket(run)
        assert (ticket.kind, ticket.message) == (TicketKind.INPUT, "Which account?")
        assert ticket.allowed_actions == {Action.RESPOND, Action.REJECT, Action.CANCEL}
        with pytest.raises(Invalid, match="response_schema_violation"):
            await run.decide(ticket.name, "respond", result="A")
        await run.decide(ticket.name, "respond", result="A-7")
        await run.finished(2)
        ticket = await the_ticket(run)
        assert ticket.message == "Refund 80 to A-7?"
        await run.decide(ticket.name, "approve")
        await run.finished(3)
        assert await result_of(run) == "paid to A-7"


async def test_two_questions_at_once_are_answered_one_after_the_other(database_url: str) -> None:
    @tool(effect="idempotent")
    async def refund(amount: float, ctx: ToolContext) -> str:
        """Pay money back."""
        async with asyncio.TaskGroup() as group:
            first = group.create_task(ctx.ask("First?"))
            second = group.create_task(ctx.ask("Second?"))
        return f"{first.result()} {second.result()}"

    async with open_replica(database_url, an_agent(refund), one_call(refunding(80))) as replica:
        run = await replica.start()
        for activation, answer in enumerate(("one", "two"), 1):
            await run.finished(activation)
            await run.decide((await the_ticket(run)).name, "respond", result=answer)
        await run.finished(3)
        assert await result_of(run) == "one two"


async def test_a_question_that_changes_is_an_error_and_no_loop(database_url: str) -> None:
    asked: list[str] = []

    @tool(effect="idempotent")
    async def refund(amount: float, ctx: ToolContext) -> str:
        """Pay money back."""
        asked.append(f"Refund now, at {len(asked)}?")
        await ctx.approve(asked[-1])
        return "paid"

    async with suspended_run(database_url, refund) as run:
        await run.decide((await the_ticket(run)).name, "approve")
        emitted = await run.finished(2)
        text = await result_of(run)
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert "question 1 of this call was 'Refund now, at 0?' and is 'Refund now, at 1?' now" in text
    assert "take what changes, such as the time, out of their texts" in text
    assert len(asked) == 2


async def test_a_tool_that_asks_in_a_loop_is_stopped(database_url: str) -> None:
    @tool(effect="idempotent")
    async def refund(amount: float, ctx: ToolContext) -> str:
        """Pay money back."""
        number = 0
        while True:
            number += 1
            await ctx.approve(f"Refund part {number}?")

    async with open_replica(database_url, an_agent(refund), one_call(refunding(80))) as replica:
        run = await replica.start()
        for activation in range(1, 21):
            await run.finished(activation)
            ticket = await the_ticket(run)
            assert ticket.message == f"Refund part {activation}?"
            await run.decide(ticket.name, "approve")
        await run.finished(21)
        assert "a call asks at most 20 questions" in await result_of(run)
        assert len(await run.tickets()) == 20


async def test_an_answer_inside_a_tool_cannot_be_remembered(database_url: str) -> None:
    asking = Asking()
    async with suspended_run(database_url, asking.tool) as run:
        request = DecisionRequest(
            ticket=(await the_ticket(run)).name,
            answer=DecisionAnswer(action=Action.APPROVE),
            decision_id=None,
            args_digest=None,
            remember=Remember(RuleScope.RUN, Match.TOOL),
        )
        with pytest.raises((Invalid, Conflict), match="remember_not_allowed"):
            await run.decide_all(request)


async def test_a_background_task_cannot_ask(database_url: str) -> None:
    errors: list[QuestionInvalid] = []

    @tool
    async def refund(amount: float, ctx: ToolContext) -> str:
        """Pay money back."""
        for asking in (ctx.approve("Refund?"), ctx.ask("Where to?")):
            try:
                await asking
            except QuestionInvalid as error:
                errors.append(error)
        return "paid"

    agent = an_agent(refund, background=["refund"])
    script = in_order(turn(refunding(80)), turn("waiting"), turn("done"))
    async with open_replica(database_url, agent, script) as replica:
        await (await replica.start()).ended()
    assert len(errors) == 2
    assert "a background task can't ask a person" in str(errors[0])


async def test_a_decision_counts_after_the_worker_was_killed(database_url: str) -> None:
    asking = Asking()
    agent = an_agent(asking.tool)
    async with open_replica(database_url, agent, one_call(refunding(80))) as first:
        run = await first.start()
        await run.finished()
        ticket = await the_ticket(run)
        await first.kill()
    async with open_replica(database_url, agent, in_order(turn("done"))) as second:
        run = second.same(run)
        await run.decide(ticket.name, "approve")
        await run.finished(2)
        assert await result_of(run) == "paid 80"
    assert (asking.begun, asking.paid) == ([80, 80], [80])
