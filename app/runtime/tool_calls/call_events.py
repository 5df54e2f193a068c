"""Events that a call waits for: signals answer its tickets, and its tool or its gate reads the payloads.

A waiting call is suspended: `wait_for` leaves the tool, and the tool is called again when the ticket is
answered or expires. Then `wait_for` returns the payload of the ticket with the same name, key and number.
So each wait opens one ticket, however often the call is run.
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
from app.runtime.ports.persistence import TicketAnswers

WAIT_ACTION = "wait_for_event"


class CallSuspended(BaseException):
    """Leaves a tool at `wait_for`, `approve` or `ask`. An `except Exception` of the tool doesn't catch it."""


def wait_request(
    wait: EventWait, schema: JsonObject | None, resume_mode: ResumeMode
) -> SuspensionRequest:
    """The suspension of a call that waits for an event."""
    return SuspensionRequest(
        wait_message(wait),
        action=WAIT_ACTION,
        resume_mode=resume_mode,
        # Encoded here, so that a value that isn't JSON fails in the tool and later changes have no effect.
        response_schema=None if schema is None else json.loads(json.dumps(schema)),
        event=wait,
    )


class CallTickets:
    """The tickets of one execution of a call, and the first wait without an answer, which suspends it."""

    def __init__(self, answers: TicketAnswers, state: CallState) -> None:
        self._answers = answers
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._tickets: Sequence[Ticket] | None = None
        self.waiting: SuspensionRequest | None = None
        """The wait that suspends the call."""

    def require_loop(self, who: str) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise EventWaitInvalid(f"{who} an async tool: write it as `async def`")

    async def all(self) -> Sequence[Ticket]:
        """All tickets of the call, oldest first."""
        if self._tickets is None:
            # An executing call has no open ticket, so its tickets can't change meanwhile.
            self._tickets = await tickets_of_call(self._answers, self._state)
        return self._tickets

    def suspended(self, request: SuspensionRequest) -> CallSuspended:
        """Note the wait, and return what has to be raised."""
        if self.waiting is None:
            self.waiting = request
        return CallSuspended()


class CallEvents:
    """The waits for events of one execution of a call."""

    def __init__(self, tickets: CallTickets) -> None:
        self._tickets = tickets
        self._counted: Counter[tuple[str, str]] = Counter()

    async def receive(
        self, name: str, key: str, schema: JsonObject | None, timeout: float | None
    ) -> Json:
        self._tickets.require_loop("wait_for needs")
        wait = EventWait(name=name, key=key, number=self._counted[name, key], timeout=timeout)
        request = wait_request(wait, schema, ResumeMode.PASS_DECISION_TO_TOOL)
        self._counted[name, key] += 1
        ticket = answered_wait(await self._tickets.all(), request)
        if ticket is None:
            raise self._tickets.suspended(request)
        if ticket.decision is None:
            raise EventTimedOut(timeout_message(name, key))
        return ticket.decision.answer.result


async def tickets_of_call(answers: TicketAnswers, state: CallState) -> Sequence[Ticket]:
    return await answers.of_call(state.step_index, state.call.id)


def answered_wait(tickets: Sequence[Ticket], request: SuspensionRequest) -> Ticket | None:
    """The answered or expired ticket of this wait."""
    requested = request.event
    assert requested is not None
    for ticket in tickets:
        wait = ticket.event
        if (
            wait is not None
            and (wait.name, wait.key, wait.number)
            == (requested.name, requested.key, requested.number)
            and ticket.resume_mode is request.resume_mode
            and ticket.status in (TicketStatus.DECIDED, TicketStatus.EXPIRED)
        ):
            return ticket
    return None


def last_approval(tickets: Sequence[Ticket]) -> Ticket | None:
    """The newest ticket by which a person approved the call."""
    approved = [
        ticket
        for ticket in tickets
        if ticket.kind is not TicketKind.EVENT
        and ticket.decision is not None
        and ticket.decision.answer.action in (Action.APPROVE, Action.EDIT)
    ]
    return approved[-1] if approved else None


def gate_wait(wait: WaitFor) -> SuspensionRequest:
    """A wait at the gate, before the call runs. Equal waits of several plugins are one."""
    return wait_request(wait.event, wait.schema, ResumeMode.REPLAY_TOOL_CALL)


async def received_at_gate(
    answers: TicketAnswers, state: CallState, name: str, key: str
) -> ReceivedEvent | None:
    """The event that a call at its gate waited for; None before it came."""
    request = gate_wait(WaitFor(name=name, key=key))
    ticket = answered_wait(await tickets_of_call(answers, state), request)
    if ticket is None or ticket.decision is None:
        return None
    return ReceivedEvent(ticket.decision.answer.result)
