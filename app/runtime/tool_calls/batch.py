"""A round of tool calls: what has become of them, and what of it isn't saved yet.

Before a tool gets a call, a commit says so; when its result is known, the next commit says that. So a
finished call is never executed again, and one that was cut short is known to be.
"""

from collections.abc import Sequence
from dataclasses import replace

from app import telemetry
from app.domain.checkpoints import CheckpointSaved
from app.domain.errors import PluginFailed
from app.domain.events.command_events import TicketOpened
from app.domain.events.run_events import AgentEvent, ToolCallDone, ToolCallResumed
from app.domain.ids import CallId, TicketKey
from app.domain.json_values import Json, JsonObject
from app.domain.runs.terminations import Termination
from app.domain.threads.messages import Message, Role
from app.domain.tickets.tickets import Ticket, TicketKind, ticket_to_json
from app.domain.tools.tool_calls import (
    INTERRUPTED,
    CallState,
    CallStatus,
    SuspensionRequest,
    ToolResult,
    UnreportedOutcome,
)
from app.runtime.active_run import ActiveRun
from app.runtime.cancellation import Interrupted
from app.runtime.handoff import handoff_change
from app.runtime.phases import HookRequests, call_hooks
from app.runtime.plugins import Phase
from app.runtime.state import ChangeBatch
from app.runtime.tool_calls.approval_gate import with_effective_arguments
from app.runtime.tool_calls.execute import Executed, Resumption, execute
from app.runtime.tool_calls.state_changes import (
    ParallelChanges,
    apply_changes,
    executed_before,
    updates_of,
)
from app.runtime.tool_calls.tickets import CallTicket, call_ticket, held_call, outcome_unknown

INTERRUPTIONS = (Interrupted, PluginFailed)
"""What may end a round in the middle: what has become of its calls until then is saved first."""

FRONTEND_TOOL, UNKNOWN_TOOL = "frontend", "unknown"


class ToolBatch:
    """Calls of one assistant message on their way to results.

    What has happened since the last save waits here, with what is said of it. Questions wait apart, for
    the commit that lets the run rest: a ticket is never announced before it is durable, nor a call
    called suspended.
    """

    def __init__(
        self, run: ActiveRun, messages: Sequence[Message] = (), calls: Sequence[CallState] = ()
    ) -> None:
        self.run = run
        self.messages: list[Message] = list(messages)
        self.pending_events: list[AgentEvent] = []
        self.changed: dict[CallId, CallState] = {state.call.id: state for state in calls}
        self.applied: list[TicketKey] = []
        self.reopened: list[TicketKey] = []
        """Answers whose calls have a new question: they count as applied once that is durable."""
        self.new_tickets: list[CallTicket] = []
        self.limit_ticket: Ticket | None = None
        """The question that calls wait for which the run may not make."""
        self.held: set[CallId] = set()
        self._places: dict[CallId, int] = {}
        self._has_results = False
        """Tools have returned since the last save."""
        self.stop: Termination | None = None
        """Why the run shall end after this round: the first who asked for it counts."""
        self.parallel_changes: ParallelChanges | None = None
        """What calls that ran at the same time have changed, when they did."""

    # --- being executed -------------------------------------------------------------------------

    async def begin(self, *states: CallState) -> None:
        """Mark calls as handed to their tools, and commit that: only then may they run."""
        if self.run.interruption.wish is not None:
            await self.save()
            self.run.interruption.check()
        self.run.usage_meter.begin(state.call.id for state in states)
        for state in states:
            self.changed[state.call.id] = replace(state, status=CallStatus.RUNNING)
        await self.save()

    async def execute(
        self, state: CallState, resumption: Resumption | None = None, *, resumed: bool = False
    ) -> CallStatus:
        """Run one call alone, from its mark to its result, which waits for the next commit."""
        await self.begin(state)
        async with self.run.interruption.interruptible():
            executed = await execute(self.run, state, self.run.state.snapshot, resumption)
        if self.has_hooks(Phase.AFTER_TOOL_EXECUTE):
            self.keep_unreported(state, executed)
            await self.save()
        return await self.finish(state, executed, resumed=resumed)

    def has_hooks(self, *phases: Phase) -> bool:
        """Whether plugins are asked in one of these phases. That may take long: what is known is saved
        before, so that a crash meanwhile repeats no call."""
        return any(self.run.agent.plugins.hooks(phase) for phase in phases)

    async def save_before_hooks(self, *phases: Phase) -> None:
        """Save the results that are known, if plugins come next."""
        if self._has_results and self.has_hooks(*phases):
            await self.save()

    async def call_before_hooks(
        self, state: CallState, resumption: Resumption | None = None
    ) -> None:
        """Let plugins know of a call that is about to run."""
        asked = await call_hooks(
            self.run,
            Phase.BEFORE_TOOL_EXECUTE,
            call=with_effective_arguments(state),
            was_approved=resumption is not None and resumption.was_approved,
            resume_input=None if resumption is None else resumption.resume_input,
        )
        self._note(asked)

    def _note(self, asked: HookRequests) -> None:
        """Remember what plugins want of the run once its calls are through."""
        self.stop = self.stop or asked.stop
        if asked.hand_off is not None:
            self.run.change_state(ChangeBatch([handoff_change(asked.hand_off)]))

    # --- what may become of a call --------------------------------------------------------------

    async def finish(
        self, state: CallState, executed: Executed, *, resumed: bool = False
    ) -> CallStatus:
        """Give the call its result, or let it wait when the result is a question."""
        self._has_results = True
        taken = apply_changes(self.run, state, executed, self.parallel_changes)
        if taken.result.suspension is not None:
            # Its changes are part of the same commit, and not made again.
            self.keep_unreported(state, Executed(taken.result))
            asked = taken.result.suspension
            kind = TicketKind.INPUT if asked.event is None else TicketKind.EVENT
            await self.open_ticket(state, asked, kind)
            return CallStatus.SUSPENDED
        try:
            self._note(
                await call_hooks(
                    self.run,
                    Phase.AFTER_TOOL_EXECUTE,
                    call=with_effective_arguments(state),
                    result=taken.result,
                )
            )
        finally:
            self._tell(state, taken, resumed=resumed)
        return taken.status

    def interrupt(self, state: CallState) -> None:
        """Say of a call that nobody will run it, or knows what became of it."""
        self._tell(state, Executed(ToolResult.error(state.call.name, INTERRUPTED)))

    def close(self, state: CallState) -> None:
        """Give a call of a run that ends its last word: what it came to, if that is known."""
        if state.unreported is None or state.unreported.suspension is not None:
            self.interrupt(state)
        else:
            self._tell(state, executed_before(self.run, state, state.unreported))

    def keep_unreported(self, state: CallState, executed: Executed) -> None:
        """Let the next commit have a result whose turn to be told hasn't come, or a question."""
        kept = UnreportedOutcome(executed.result, updates_of(executed.changes))
        self.changed[state.call.id] = replace(
            state, status=executed.status, unreported_outcome=kept
        )

    def cancel(self, state: CallState, payload: Json, reason: str | None) -> None:
        """A person took the call back: what they say stands in place of a result."""
        said = payload if payload is not None else reason
        self._answer(state, ToolResult.success(state.call.name, said), CallStatus.CANCELLED)
        self.pending_events.append(ToolCallResumed(state.call.id, said))

    async def open_ticket(
        self,
        state: CallState,
        suspension: SuspensionRequest,
        kind: TicketKind,
        evidence: JsonObject | None = None,
    ) -> None:
        """Ask a person, once the run comes to rest."""
        self._places[state.call.id] = state.position
        self.new_tickets.append(
            await call_ticket(self.run, state, suspension, kind, evidence, beside=self.new_tickets)
        )

    async def open_outcome_ticket(self, state: CallState, why: str | None) -> None:
        """A worker was lost over this call: only a person can find out what it did."""
        request, evidence = await outcome_unknown(self.run, state, why)
        await self.open_ticket(state, request, TicketKind.OUTCOME_UNKNOWN, evidence)

    def hold(self, state: CallState, about: Ticket) -> None:
        """Let a call wait until the run may make more; one question is enough for all of them."""
        self.limit_ticket = about
        self.held.add(state.call.id)
        if state.status is not CallStatus.SUSPENDED:
            self._places[state.call.id] = state.position
            self.new_tickets.append(held_call(self.run, state, about))

    @property
    def opened(self) -> list[Ticket]:
        """Questions that are open once the run has come to rest."""
        asked = [each.ticket for each in self.new_tickets if each.ticket is not None]
        return asked if self.limit_ticket is None else [*asked, self.limit_ticket]

    @property
    def applied_tickets(self) -> list[TicketKey]:
        """Answers that aren't to be applied again."""
        return [*self.applied, *self.reopened]

    def with_tickets(self) -> tuple[list[Message], list[AgentEvent]]:
        """What the log and the clients get when the run comes to rest."""
        messages = [*self.messages, *(each.placeholder for each in self.new_tickets)]
        said = [(_subject(event), event) for event in self.pending_events]
        said += [(each.state.call.id, event) for each in self.new_tickets for event in each.said]
        if self.run.in_step:
            # Results and questions of one step in the order of its calls.
            messages.sort(key=self._place_of)
            said.sort(key=lambda each: self._places[each[0]])
        events = [event for _, event in said]
        if self.limit_ticket is not None:
            events.append(TicketOpened(ticket_to_json(self.limit_ticket)))
        return messages, events

    def withdraw_tickets(self) -> None:
        """Nobody will be asked: the run ends."""
        withdrawn, self.new_tickets = self.new_tickets, []
        self.limit_ticket = None
        for each in withdrawn:
            self.interrupt(each.state)
        self.messages.sort(key=self._place_of)
        self.pending_events.sort(key=lambda event: self._places[_subject(event)])

    # --- being saved ----------------------------------------------------------------------------

    async def save(self, *, completes_step: bool = False, calls_settled: bool = False) -> None:
        """Commit what has happened, without ending anything."""
        if not (
            self.messages or self.pending_events or self.changed or self.applied or calls_settled
        ):
            return
        answer = await self.run.save(
            self.messages,
            said=self.pending_events,
            calls=tuple(self.changed.values()),
            applied=self.applied,
            completes_step=completes_step,
            calls_settled=calls_settled,
        )
        if isinstance(answer, CheckpointSaved):
            self.messages, self.pending_events, self.applied = [], [], []
            self.changed.clear()
            self._has_results = False

    def _tell(self, state: CallState, executed: Executed, *, resumed: bool = False) -> None:
        result = executed.result
        message = self._answer(state, result, executed.status)
        if resumed:
            self.pending_events.append(ToolCallResumed(state.call.id, result.resumed_payload()))
        else:
            self.pending_events.append(
                ToolCallDone(state.call.id, message.id, result.to_json(), executed.status.value)
            )

    def _place_of(self, message: Message) -> int:
        """Results stand in their calls' order, behind the message that asked and before any note."""
        if message.tool_call_id is None:
            return -1 if message.role is Role.ASSISTANT else len(self._places)
        return self._places[message.tool_call_id]

    def _answer(self, state: CallState, result: ToolResult, status: CallStatus) -> Message:
        message = result.as_message(self.run.new_message_id(), state.call.id, state.run_with)
        self.messages.append(message)
        self._places[state.call.id] = state.position
        kept = None if self.parallel_changes is None else self.parallel_changes.kept_for(state)
        self.changed[state.call.id] = replace(state, status=status, unreported_outcome=kept)
        telemetry.tool_calls.labels(self._label(state.call.name), status.value).inc()
        return message

    def _label(self, tool_name: str) -> str:
        """The tool in metrics: one value for all names that a client or the model has chosen."""
        tool = self.run.agent.tools.get(tool_name)
        if tool is None:
            return UNKNOWN_TOOL
        return FRONTEND_TOOL if tool.descriptor.is_frontend else tool_name


def _subject(event: AgentEvent) -> CallId:
    """The call that an event of a round is about."""
    match event:
        case ToolCallDone(id) | ToolCallResumed(id):
            return CallId(id)
        case _:
            raise TypeError(f"a round says nothing like {event.event_type}")
