"""Questions that a running tool asks a person: `ctx.approve` and `ctx.ask`.

The first question without an answer suspends the call. After the decision the tool is called again from its
start. Its questions are counted: the first question gets the answer to the first ticket, and so on. So the tool
must ask the same questions in the same order each time; a question with another text is an error.
"""

import asyncio
import json
from collections.abc import Sequence

from app.domain.errors import DecisionRejected, QuestionInvalid
from app.domain.json_values import Json, JsonObject
from app.domain.tickets.decisions import EXPIRED, Action, Decision, denial
from app.domain.tickets.tickets import APPROVE_ACTION, ASK_ACTION, Ticket, TicketStatus
from app.domain.tools.tool_calls import ResumeMode, SuspensionRequest
from app.runtime.ports.call_waits import ApprovalGiven
from app.runtime.tool_calls.call_events import CallTickets

MAX_QUESTIONS = 20
"""The most questions that one call may ask. A person is not asked without end."""
MAX_QUESTION_CHARACTERS = 10_000


class CallQuestions:
    """The questions of one execution of a call."""

    def __init__(self, tickets: CallTickets) -> None:
        self._tickets = tickets
        self._number = 0
        # Of questions asked at once, the first one suspends the call.
        self._one_at_a_time = asyncio.Lock()

    async def approve(self, question: str) -> ApprovalGiven:
        decision = await self._decision(question, APPROVE_ACTION, None)
        return ApprovalGiven(
            decided_by=decision.subject,
            decided_at=decision.at,
            reason=decision.answer.reason,
            arguments=decision.answer.arguments,
        )

    async def ask(self, question: str, schema: JsonObject | None) -> Json:
        decision = await self._decision(question, ASK_ACTION, schema)
        return decision.answer.result

    async def _decision(self, question: str, action: str, schema: JsonObject | None) -> Decision:
        self._tickets.require_loop("approve and ask need")
        number, self._number = self._number, self._number + 1
        if not 0 < len(question) <= MAX_QUESTION_CHARACTERS:
            raise QuestionInvalid(f"a question has 1 to {MAX_QUESTION_CHARACTERS} characters")
        if number >= MAX_QUESTIONS:
            raise QuestionInvalid(
                f"a call asks at most {MAX_QUESTIONS} questions, and this one asks more: end its loop,"
                " or ask one question about all"
            )
        request = SuspensionRequest(
            question,
            action=action,
            resume_mode=ResumeMode.PASS_DECISION_TO_TOOL,
            response_schema=None if schema is None else json.loads(json.dumps(schema)),
        )
        async with self._one_at_a_time:
            asked = await self._answered()
            if number >= len(asked):
                raise self._tickets.suspended(request)
        _require_same(asked, number, request)
        return _decision_of(asked[number])

    async def _answered(self) -> list[Ticket]:
        return [
            ticket
            for ticket in await self._tickets.all()
            if ticket.is_question_of_tool
            and ticket.status in (TicketStatus.DECIDED, TicketStatus.EXPIRED)
        ]


def _require_same(asked: Sequence[Ticket], number: int, request: SuspensionRequest) -> None:
    """A person's edit of the arguments changes the texts of the questions up to then."""
    before = asked[number]
    was_edited = any(
        each.decision is not None and each.decision.answer.action is Action.EDIT
        for each in asked[number:]
    )
    if before.reason != request.action or (before.message != request.message and not was_edited):
        raise QuestionInvalid(
            f"question {number + 1} of this call was {before.message!r} and is {request.message!r} now."
            " After each answer the tool runs again from its start, and must ask the same questions in the"
            " same order: take what changes, such as the time, out of their texts"
        )


def _decision_of(ticket: Ticket) -> Decision:
    decision = ticket.decision
    if decision is None:
        raise DecisionRejected(EXPIRED)
    if decision.answer.action is Action.REJECT:
        raise DecisionRejected(
            denial(decision.answer), reason=decision.answer.reason, decided_by=decision.subject
        )
    return decision
