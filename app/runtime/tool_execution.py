"""A round of tool calls: through the gate, marked, executed one by one, each result saved.

Before a tool gets a call, a commit says so; when its result is known, the next commit says that. So a
finished call is never executed again, and one that was cut short is known to be.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app import telemetry
from app.clock import new_id
from app.domain.events import AgentEvent, TicketOpened, ToolCallDone, ToolCallResumed
from app.domain.ids import CallId, TicketKey
from app.domain.json_values import Json, JsonObject, as_object
from app.domain.messages import Message
from app.domain.ticket_terms import policy_of_request
from app.domain.tickets import (
    Ticket,
    TicketKind,
    TicketStatus,
    ticket_for,
    ticket_name,
    ticket_to_json,
)
from app.domain.times import wire_time
from app.domain.tool_calls import (
    INTERRUPTED,
    CallState,
    CallStatus,
    ResultStatus,
    SuspensionRequest,
    ToolResult,
)
from app.runtime.context import ActiveRun
from app.runtime.ports import ToolContext

APPROVAL_ACTION = "tool:PermissionConfirm"
OUTCOME_UNKNOWN_ACTION = "tool:OutcomeUnknown"

_OUTCOME: dict[ResultStatus, CallStatus] = {
    ResultStatus.SUCCESS: CallStatus.SUCCEEDED,
    ResultStatus.ERROR: CallStatus.FAILED,
    ResultStatus.PENDING: CallStatus.SUSPENDED,
}


@dataclass(frozen=True, slots=True)
class Question:
    """A call that waits for a person, with all that is said once its ticket is durable."""

    state: CallState
    ticket: Ticket
    placeholder: Message
    said: tuple[AgentEvent, ...]


class ToolRound:
    """Calls of one assistant message on their way to results.

    What has happened since the last save waits here. Questions wait apart, for the commit that lets
    the run rest: a ticket is never announced before it is durable, nor a call called suspended.
    """

    def __init__(
        self, run: ActiveRun, messages: Sequence[Message] = (), calls: Sequence[CallState] = ()
    ) -> None:
        self._run = run
        self.messages: list[Message] = list(messages)
        self.changed: dict[CallId, CallState] = {state.call.id: state for state in calls}
        self.applied: list[TicketKey] = []
        self.questions: list[Question] = []

    async def run_calls(self, calls: Sequence[CallState]) -> None:
        """Take every call as far as it gets; a tool that asks a person stops the ones behind it."""
        for place, state in enumerate(calls):
            if state.status.is_final:
                continue
            if state.status is CallStatus.RUNNING and not state.effect.may_be_rerun:
                self.ask_for_outcome(state)
                continue
            if state.status is not CallStatus.RUNNING:
                refused = self._gate(state)
                if isinstance(refused, ToolResult):
                    self.finish(state, refused)
                    continue
                if refused is not None:
                    self.ask(state, refused, TicketKind.APPROVAL)
                    continue
            if await self.execute(state) is CallStatus.SUSPENDED:
                for behind in calls[place + 1 :]:
                    if not behind.status.is_final:
                        self.finish(behind, ToolResult.error(behind.call.name, INTERRUPTED))
                return

    def _gate(self, state: CallState) -> ToolResult | SuspensionRequest | None:
        """Why a call may not run as it is, if it may not."""
        if (refused := self.refusal(state)) is not None:
            return refused
        if state.call.name in self._run.agent.spec.approval:
            return SuspensionRequest(
                f"Tool '{state.call.name}' suspended: awaiting approval",
                action=APPROVAL_ACTION,
                suspension_id=f"perm_{state.call.id}",
            )
        return None

    def refusal(self, state: CallState) -> ToolResult | None:
        """The error that a call gets which can't be run at all: no such tool, or wrong arguments."""
        name = state.call.name
        tool = self._run.agent.tools.get(name)
        if tool is None:
            return ToolResult.error(name, f"tool '{name}' not found")
        wrong = tool.invalid_arguments(state.effective_arguments)
        return None if wrong is None else ToolResult.error(name, f"Invalid arguments: {wrong}")

    async def execute(
        self, state: CallState, *, resumed: bool = False, resume_input: Json = None
    ) -> CallStatus:
        """Mark the call, commit that, hand it to its tool, and keep the result for the next commit."""
        if self._run.interruption.wish is not None:
            await self.save()
            self._run.interruption.check()
        state = replace(state, status=CallStatus.RUNNING)
        self.changed[state.call.id] = state
        await self.save()
        tool = self._run.agent.tools[state.call.name]
        context = ToolContext(
            run_id=self._run.record.id,
            thread_id=self._run.record.thread_id,
            call_id=state.call.id,
            tool_name=state.call.name,
            idempotency_key=state.idempotency_key,
            say=self._run.say,
            resume_input=resume_input,
        )
        async with self._run.interruption.interruptible():
            result = await tool.execute(as_object(state.effective_arguments) or {}, context)
        return self.finish(state, result, resumed=resumed)

    # --- what may become of a call --------------------------------------------------------------

    def finish(self, state: CallState, result: ToolResult, *, resumed: bool = False) -> CallStatus:
        """Give the call its result, or let it wait when the result is a question."""
        if result.suspension is not None:
            self.ask(state, result.suspension, TicketKind.INPUT)
            return CallStatus.SUSPENDED
        status = _OUTCOME[result.status]
        message = self._answer(state, result, status)
        if resumed:
            self._run.say(ToolCallResumed(state.call.id, result.resumed_payload()))
        else:
            self._run.say(ToolCallDone(state.call.id, message.id, result.to_json(), status.value))
        return status

    def cancel(self, state: CallState, payload: Json, reason: str | None) -> None:
        """A person took the call back: what they say stands in place of a result."""
        said = payload if payload is not None else reason
        self._answer(state, ToolResult.success(state.call.name, said), CallStatus.CANCELLED)
        self._run.say(ToolCallResumed(state.call.id, said))

    def ask(
        self,
        state: CallState,
        suspension: SuspensionRequest,
        kind: TicketKind,
        evidence: JsonObject | None = None,
    ) -> None:
        """Ask a person. The log gets a placeholder, so that no call is ever without a message."""
        ticket = self._ticket(state, suspension, kind, evidence)
        pending = ToolResult.suspended(state.call.name, suspension)
        placeholder = pending.as_message(self._run.new_message_id(), state.call.id)
        self.questions.append(
            Question(
                replace(state, status=CallStatus.SUSPENDED),
                ticket,
                placeholder,
                (
                    ToolCallDone(
                        state.call.id, placeholder.id, pending.to_json(), CallStatus.SUSPENDED.value
                    ),
                    TicketOpened(ticket_to_json(ticket)),
                ),
            )
        )

    def ask_for_outcome(self, state: CallState) -> None:
        """A worker was lost over this call: only a person can find out what it did."""
        name = state.call.name
        marked_at = self._run.start.marked_at.get(state.call.id)
        evidence = {
            "idempotency_key": state.idempotency_key,
            "started_at": None if marked_at is None else wire_time(marked_at),
            "ran_with": state.effective_arguments,
        }
        self.ask(
            state,
            SuspensionRequest(
                f"Tool '{name}' was running when its worker was lost; whether it took effect is unknown",
                action=OUTCOME_UNKNOWN_ACTION,
                suspension_id=f"unknown_{state.call.id}",
            ),
            TicketKind.OUTCOME_UNKNOWN,
            evidence,
        )

    # --- being saved ----------------------------------------------------------------------------

    async def save(self) -> None:
        """Commit what has happened, without ending anything."""
        await self._run.save(
            self.messages, calls=tuple(self.changed.values()), applied=self.applied
        )
        self.messages, self.applied = [], []
        self.changed.clear()

    def _answer(self, state: CallState, result: ToolResult, status: CallStatus) -> Message:
        message = result.as_message(self._run.new_message_id(), state.call.id, state.run_with)
        self.messages.append(message)
        self.changed[state.call.id] = replace(state, status=status)
        telemetry.tool_calls.labels(state.call.name, status.value).inc()
        return message

    def _ticket(
        self,
        state: CallState,
        suspension: SuspensionRequest,
        kind: TicketKind,
        evidence: JsonObject | None,
    ) -> Ticket:
        others = (*self._run.tickets, *(question.ticket for question in self.questions))
        taken = {ticket.ticket_id for ticket in others if ticket.status is TicketStatus.OPEN}
        return ticket_for(
            state,
            suspension,
            key=TicketKey(new_id()),
            run_id=self._run.record.id,
            thread_id=self._run.record.thread_id,
            agent_id=self._run.agent.spec.id,
            ticket_id=ticket_name(suspension, state.call.id, taken),
            kind=kind,
            at=self._run.clock.now(),
            evidence=evidence,
            terms=self._run.agent.spec.ticket_terms(
                state.call.name, policy_of_request(self._run.record.request)
            ),
        )
