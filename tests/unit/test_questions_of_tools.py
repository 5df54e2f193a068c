"""`ctx.approve` and `ctx.ask`: each question of a call gets its own answer, however often the tool starts again."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from app.domain.errors import DecisionRejected, QuestionInvalid
from app.domain.events.ticket_events import TicketExpired
from app.domain.json_values import Json
from app.domain.runs.runs import Done
from app.domain.runs.terminations import NaturalEnd
from app.domain.structs import replace
from app.domain.tickets.decisions import EXPIRED, Action
from app.domain.tickets.tickets import Ticket, TicketKind, TicketStatus
from app.domain.tools.tool_calls import INTERRUPTED
from app.llm.scripted.model import Call, turn
from app.runtime.plugins import Phase
from app.runtime.ports.tool_context import ToolContext
from app.runtime.tool_calls.call_events import CallSuspended
from app.runtime.tool_calls.call_questions import MAX_QUESTION_CHARACTERS, MAX_QUESTIONS
from app.tools.functions.decorator import tool
from tests.support.calling import context
from tests.support.hooks import watching
from tests.support.plain_runs import PlainRun

pytestmark = pytest.mark.anyio

Body = Callable[[ToolContext, int], Awaitable[Json]]


async def run_of(body: Body, request: dict[str, Any] | None = None, **of_spec: Any) -> PlainRun:
    """A run whose only call executes this body, until the run waits or ends."""

    @tool(name="order")
    async def order(ctx: ToolContext, amount: int = 1) -> Json:
        return await body(ctx, amount)

    run = PlainRun(turn(Call(tool="order")), turn("Done."), tools=[order], **of_spec)
    await run.start(request=request or {})
    return run


def result_of(run: PlainRun) -> str:
    """The result of the call of a run that has ended."""
    state = run.rows.record.state
    assert isinstance(state, Done)
    assert state.termination == NaturalEnd()
    return [text for role, text in run.texts if role == "tool"][-1]


def the_ticket(run: PlainRun) -> Ticket:
    [ticket] = run.rows.open_tickets
    return ticket


async def expire(run: PlainRun) -> None:
    ticket = the_ticket(run)
    run.system.tickets[ticket.id] = replace(ticket, status=TicketStatus.EXPIRED)
    run.system.emit(TicketExpired(ticket.id, "reject"))
    await run.execute()


async def colour_and_size(ctx: ToolContext, amount: int) -> Json:
    return [await ctx.ask("Which colour?"), await ctx.ask("Which size?", {"type": "integer"})]


async def test_each_question_gets_its_own_answer() -> None:
    run = await run_of(colour_and_size)
    first = the_ticket(run)
    assert (first.kind, first.message) == (TicketKind.INPUT, "Which colour?")
    assert first.response_schema is None
    await run.answer(Action.RESPOND, result="red")
    second = the_ticket(run)
    assert (second.message, second.response_schema) == ("Which size?", {"type": "integer"})
    await run.answer(Action.RESPOND, result=4)
    assert result_of(run) == '["red",4]'


async def test_an_approval_names_who_gave_it() -> None:
    async def body(ctx: ToolContext, amount: int) -> Json:
        given = await ctx.approve("Pay?")
        return [given.decided_by, given.reason, given.decided_at is not None]

    run = await run_of(body)
    ticket = the_ticket(run)
    assert (ticket.kind, ticket.message) == (TicketKind.APPROVAL, "Pay?")
    await run.answer(Action.APPROVE, reason="It is cheap.")
    assert result_of(run) == f'["{run.rows.record.started_by}","It is cheap.",true]'


@pytest.mark.parametrize("ask", [ToolContext.ask, ToolContext.approve])
async def test_a_rejection_and_an_expiry_end_the_call(
    ask: Callable[[ToolContext, str], Awaitable[Any]],
) -> None:
    async def body(ctx: ToolContext, amount: int) -> Json:
        await ask(ctx, "Go on?")
        return "went on"

    rejected = await run_of(body)
    await rejected.answer(Action.REJECT, reason="too dear")
    assert result_of(rejected).endswith("Denied: too dear")
    late = await run_of(body)
    await expire(late)
    assert result_of(late).endswith(EXPIRED)


async def test_a_tool_may_continue_after_a_rejection_and_an_expiry() -> None:
    async def body(ctx: ToolContext, amount: int) -> Json:
        refused: list[Json] = []
        for question in ("Red?", "Green?"):
            try:
                await ctx.ask(question)
            except DecisionRejected as error:
                refused.append([error.reason, error.decided_by])
        return [*refused, (await ctx.approve("None?")).reason]

    run = await run_of(body)
    await expire(run)
    await run.answer(Action.REJECT, reason="no")
    await run.answer(Action.APPROVE, reason="yes")
    assert result_of(run) == f'[[null,null],["no","{run.rows.record.started_by}"],"yes"]'


async def test_a_cancelled_question_cancels_the_call() -> None:
    run = await run_of(colour_and_size)
    await run.answer(Action.CANCEL, reason="never mind")
    assert result_of(run) == "never mind"


async def test_a_person_can_edit_the_arguments() -> None:
    amounts: list[int] = []

    async def body(ctx: ToolContext, amount: int) -> Json:
        amounts.append(amount)
        # The edit changes the texts of both questions.
        await ctx.approve(f"Pay {amount}?")
        await ctx.approve(f"Really pay {amount}?")
        return f"paid {amount}"

    run = await run_of(body)
    await run.answer(Action.APPROVE)
    await run.answer(Action.EDIT, arguments={"amount": 7})
    assert result_of(run) == "paid 7"
    assert amounts == [1, 1, 7]


async def test_an_answer_edits_no_arguments() -> None:
    async def body(ctx: ToolContext, amount: int) -> Json:
        return [amount, await ctx.ask("How many?")]

    run = await run_of(body)
    await run.answer(Action.RESPOND, result={"amount": 3})
    assert result_of(run) == '[1,{"amount":3}]'


async def test_a_question_behind_an_edit_keeps_its_text() -> None:
    texts = iter(["a", "b"])

    async def body(ctx: ToolContext, amount: int) -> Json:
        await ctx.approve("Pay?")
        await ctx.ask(next(texts))
        return await ctx.ask("More?")

    run = await run_of(body)
    await run.answer(Action.EDIT, arguments={"amount": 7})
    await run.answer(Action.RESPOND)
    assert "question 2 of this call was 'a' and is 'b' now" in result_of(run)


@pytest.mark.parametrize(
    ("again", "same"),
    [
        (lambda ctx: ctx.ask("How much?"), True),
        (lambda ctx: ctx.ask("How many?"), False),
        (lambda ctx: ctx.approve("How much?"), False),
    ],
)
async def test_a_tool_must_ask_the_same_question_each_time(
    again: Callable[[ToolContext], Awaitable[Json]], same: bool
) -> None:
    asks: list[Callable[[ToolContext], Awaitable[Json]]] = [lambda ctx: ctx.ask("How much?"), again]

    async def body(ctx: ToolContext, amount: int) -> Json:
        return await asks.pop(0)(ctx)

    run = await run_of(body)
    await run.answer(Action.RESPOND, result="5")
    expected = "5" if same else "question 1 of this call was 'How much?'"
    assert expected in result_of(run)


@pytest.mark.parametrize(
    ("length", "accepted"),
    [(0, False), (1, True), (MAX_QUESTION_CHARACTERS, True), (MAX_QUESTION_CHARACTERS + 1, False)],
)
async def test_a_question_has_a_length(length: int, accepted: bool) -> None:
    run = await run_of(lambda ctx, amount: ctx.ask("x" * length))
    assert len(run.rows.open_tickets) == accepted
    if not accepted:
        assert f"a question has 1 to {MAX_QUESTION_CHARACTERS} characters" in result_of(run)


async def test_a_call_asks_a_limited_number_of_questions() -> None:
    async def body(ctx: ToolContext, amount: int) -> Json:
        for number in range(MAX_QUESTIONS + 1):
            await ctx.ask(f"Question {number}?")
        return "asked all"

    run = await run_of(body)
    for _ in range(MAX_QUESTIONS):
        await run.answer(Action.RESPOND)
    assert f"a call asks at most {MAX_QUESTIONS} questions" in result_of(run)


async def test_an_approval_of_the_call_answers_no_question_of_its_tool() -> None:
    run = await run_of(lambda ctx, amount: ctx.ask("Which colour?"), approval=("order",))
    await run.answer(Action.APPROVE)
    assert the_ticket(run).message == "Which colour?"
    await run.answer(Action.RESPOND, result="red")
    assert result_of(run) == "red"


async def test_only_an_approval_counts_as_one_at_the_gate() -> None:
    async def body(ctx: ToolContext, amount: int) -> Json:
        with suppress(DecisionRejected):
            await ctx.ask("Which colour?")
        await ctx.ask("Which size?")
        await ctx.approve("Pay?")
        return "paid"

    hooks = watching(Phase.TOOL_GATE)
    run = await run_of(body, plugins=[hooks.plugin])
    await expire(run)
    await run.answer(Action.RESPOND, result=4)
    await run.answer(Action.APPROVE)
    assert result_of(run) == "paid"
    assert [view.was_approved for view in hooks.seen] == [False, False, False, True]


@pytest.mark.parametrize("on_limit", ["stop", "ask"])
async def test_a_call_that_asks_counts_once(on_limit: str) -> None:
    limits = {"limits": {"tool_calls": 1}, "on_limit": on_limit}
    run = await run_of(colour_and_size, limits)
    await run.answer(Action.RESPOND, result="red")
    await run.answer(Action.RESPOND, result=4)
    assert result_of(run) == '["red",4]'


async def test_of_questions_asked_at_once_the_first_one_is_asked_first() -> None:
    async def body(ctx: ToolContext, amount: int) -> Json:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ctx.ask(question)) for question in ("First?", "Second?")]
        return [task.result() for task in asked]

    run = await run_of(body)
    assert the_ticket(run).message == "First?"
    await run.answer(Action.RESPOND, result=1)
    assert the_ticket(run).message == "Second?"
    await run.answer(Action.RESPOND, result=2)
    assert result_of(run) == "[1,2]"


class Stopped(BaseException):
    """Not an error of the tool, but the end of its process."""


@pytest.mark.parametrize("asks", [True, False])
async def test_the_end_of_the_process_is_no_result_of_a_call(asks: bool) -> None:
    async def body(ctx: ToolContext, amount: int) -> Json:
        ends: list[BaseException] = [Stopped()]
        try:
            await ctx.ask("Which colour?")
        except CallSuspended as suspended:
            if asks:
                ends.append(suspended)
        raise BaseExceptionGroup("both", ends)

    with pytest.raises(BaseExceptionGroup):
        await run_of(body)


@pytest.mark.parametrize("ask", [ToolContext.ask, ToolContext.approve])
async def test_a_background_task_cannot_ask(
    ask: Callable[[ToolContext, str], Awaitable[Any]],
) -> None:
    with pytest.raises(QuestionInvalid, match="a background task can't ask a person"):
        await ask(context(), "Which colour?")


async def test_a_call_that_waits_for_an_answer_is_closed_by_a_cancel() -> None:
    run = await run_of(colour_and_size)
    await run.system.cancel("enough")
    rows = await run.system.rows()
    assert [each.message.text for each in rows.log][-1] == INTERRUPTED
