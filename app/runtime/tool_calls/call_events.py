"""Events that a call waits for: signals answer its tickets, and its tool or its gate reads the payloads.

A call that waits is suspended: its tool is left at `wait_for`, and called once more when the ticket is
answered or expires. Then `wait_for` returns what the ticket of the same name, key and number has got, so
that each wait opens one ticket, however often the call is run.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence

from app.domain.errors import EventTimedOut, EventWaitInvalid
from app.domain.json_values import Json, JsonObject
from app.domain.signals import EventWait, ReceivedEvent, timeout_message, wait_message
from app.domain.tickets.decisions import Action
from app.domain.tickets.tickets import Ticket, TicketKind, TicketStatus
from app.domain.tools.tool_calls import CallState, ResumeMode, SuspensionRequest
from app.runtime.plugins import WaitFor
from app.runtime.ports import TicketAnswers

WAIT_ACTION = "wait_for_event"


class CallSuspended(BaseException):
    """Leaves a tool at `wait_for`. No `except Exception` of the tool's can catch it."""


def wait_request(
    wait: EventWait, schema: JsonObject | None, resume_mode: ResumeMode
) -> SuspensionRequest:
    """The suspension of a call that waits for an event."""
    return SuspensionRequest(
        wait_message(wait),
        action=WAIT_ACTION,
        resume_mode=resume_mode,
        # Encoded here so that what isn't JSON fails in the tool, and later changes don't show.
        response_schema=None if schema is None else json.loads(json.dumps(schema)),
        event=wait,
    )


class CallEvents:
    """The waits of one execution of a call. The first that has no answer yet suspends the call."""

    def __init__(self, answers: TicketAnswers, state: CallState) -> None:
        self._answers = answers
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._counted: Counter[tuple[str, str]] = Counter()
        self._tickets: Sequence[Ticket] | None = None
        self.waiting: SuspensionRequest | None = None
        """What the call has begun to wait for."""

    async def receive(
        self, name: str, key: str, schema: JsonObject | None, timeout: float | None
    ) -> Json:
        if asyncio.get_running_loop() is not self._loop:
            raise EventWaitInvalid("wait_for needs an async tool: write it as `async def`")
        wait = EventWait(name=name, key=key, number=self._counted[name, key], timeout=timeout)
        request = wait_request(wait, schema, ResumeMode.PASS_DECISION_TO_TOOL)
        self._counted[name, key] += 1
        if self._tickets is None:
            # While the call executes it has no open ticket, so that none is answered.
            self._tickets = await tickets_of_call(self._answers, self._state)
        ticket = answered_wait(self._tickets, request)
        if ticket is not None:
            if ticket.decision is None:
                raise EventTimedOut(timeout_message(name, key))
            return ticket.decision.answer.result
        if self.waiting is None:
            self.waiting = request
        raise CallSuspended


async def tickets_of_call(answers: TicketAnswers, state: CallState) -> Sequence[Ticket]:
    return await answers.of_call(state.step_index, state.call.id)


def answered_wait(tickets: Sequence[Ticket], request: SuspensionRequest) -> Ticket | None:
    """The ticket of the same wait, when it was answered or has expired."""
    asked = request.event
    assert asked is not None
    for ticket in tickets:
        wait = ticket.event
        if (
            wait is not None
            and (wait.name, wait.key, wait.number) == (asked.name, asked.key, asked.number)
            and ticket.resume_mode is request.resume_mode
            and ticket.status in (TicketStatus.DECIDED, TicketStatus.EXPIRED)
        ):
            return ticket
    return None


def last_approval(tickets: Sequence[Ticket]) -> Ticket | None:
    """The newest ticket of a call by which a person has let it run."""
    approved = [
        ticket
        for ticket in tickets
        if ticket.kind is not TicketKind.EVENT
        and ticket.decision is not None
        and ticket.decision.answer.action in (Action.APPROVE, Action.EDIT)
    ]
    return approved[-1] if approved else None


def gate_wait(wait: WaitFor) -> SuspensionRequest:
    """A wait of the gate: the call runs only after it. The same wait counts for all plugins."""
    return wait_request(wait.event, wait.schema, ResumeMode.REPLAY_TOOL_CALL)


async def received_at_gate(
    answers: TicketAnswers, state: CallState, name: str, key: str
) -> ReceivedEvent | None:
    """What has come for a call that its gate has let wait."""
    request = gate_wait(WaitFor(name=name, key=key))
    ticket = answered_wait(await tickets_of_call(answers, state), request)
    if ticket is None or ticket.decision is None:
        return None
    return ReceivedEvent(ticket.decision.answer.result)
