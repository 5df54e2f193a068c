"""The state of one step's tool calls: their results and tickets, and what isn't saved yet.

A commit marks a call before its tool gets it, and the next commit has its result. So a finished call is
never executed again, and a call that a crash interrupted is known as such.
"""

from collections.abc import Sequence

from app import telemetry
from app.domain.checkpoints import CheckpointSaved
from app.domain.errors import PluginFailed
from app.domain.events.agent_events import AgentEvent
from app.domain.events.ticket_events import TicketOpened
from app.domain.events.tool_call_events import ToolCallDone, ToolCallResumed
from app.domain.ids import CallId, TicketKey
from app.domain.json_values import Json, JsonObject
from app.domain.runs.terminations import Termination
from app.domain.structs import replace
from app.domain.threads.messages import Message, Role
from app.domain.tickets.opening import kind_of_suspension
from app.domain.tickets.ticket_json import ticket_to_json
from app.domain.tickets.tickets import Ticket, TicketKind
from app.domain.timestamps import format_timestamp
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
from app.runtime.tool_calls.execute import CallSpan, Executed, Resumption, execute
from app.runtime.tool_calls.state_changes import (
    ParallelChanges,
    apply_changes,
    executed_before,
    updates_of,
)
from app.runtime.tool_calls.tickets import (
    CallTicket,
    call_held_by_limit,
    call_ticket,
    outcome_unknown,
)

INTERRUPTIONS = (Interrupted, PluginFailed)
"""Exceptions that end a batch in the middle; the results so far are saved first."""

FRONTEND_TOOL, UNKNOWN_TOOL = "frontend", "unknown"


class ToolBatch:
    """The calls of one assistant message until all have results.

    It keeps the messages, events and call states since the last save. New tickets are kept apart, for
    the commit that suspends the run: `ticket_opened` is never emitted before its ticket is durable.
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
        """Applied tickets whose calls have a new ticket: both are saved by the same commit."""
        self.new_tickets: list[CallTicket] = []
        self.limit_ticket: Ticket | None = None
        """The ticket that the calls over the limit wait for."""
        self.held: set[CallId] = set()
        self._positions: dict[CallId, int] = {}
        self._spans: dict[CallId, CallSpan] = {}
        self._has_results = False
        """Whether tools have returned since the last save."""
        self.stop: Termination | None = None
        """Why the run ends after this batch; the first reason counts."""
        self.parallel_changes: ParallelChanges | None = None
        """The state changes of parallel calls; None for sequential ones."""

    # --- execution ------------------------------------------------------------------------------

    async def begin(self, *states: CallState) -> None:
        """Commit that the calls are handed to their tools. Only then may they run."""
        if self.run.interruption.requested is not None:
            await self.save()
            self.run.interruption.check()
        self.run.usage_meter.begin(state.call.id for state in states)
        for state in states:
            self.changed[state.call.id] = replace(state, status=CallStatus.RUNNING)
        await self.save()

    async def execute(
        self, state: CallState, resumption: Resumption | None = None, *, resumed: bool = False
    ) -> CallStatus:
        """Mark and run one call; the next commit saves its result."""
        await self.begin(state)
        async with self.run.interruption.interruptible():
            executed = await execute(self.run, state, self.run.state.snapshot, resumption)
        if self.has_hooks(Phase.AFTER_TOOL_EXECUTE):
            self.keep_unreported(state, executed)
            await self.save()
        return await self.finish(state, executed, resumed=resumed)

    def has_hooks(self, *phases: Phase) -> bool:
        """Whether plugins have hooks in one of these phases. Hooks may take long, so results are saved
        before: a crash meanwhile repeats no call."""
        return any(self.run.agent.plugins.hooks(phase) for phase in phases)

    async def save_before_hooks(self, *phases: Phase) -> None:
        """Save the known results if plugins have hooks in one of these phases."""
        if self._has_results and self.has_hooks(*phases):
            await self.save()

    async def call_before_hooks(
        self, state: CallState, resumption: Resumption | None = None
    ) -> None:
        """Call the hooks of a call that is about to run."""
        requests = await call_hooks(
            self.run,
            Phase.BEFORE_TOOL_EXECUTE,
            call=with_effective_arguments(state),
            was_approved=resumption is not None and resumption.was_approved,
            resume_input=None if resumption is None else resumption.resume_input,
        )
        self._keep_requests(requests)

    def _keep_requests(self, requests: HookRequests) -> None:
        """Keep the stop or hand-off that plugins ask for until the batch is complete."""
        self.stop = self.stop or requests.stop
        if requests.hand_off is not None:
            self.run.change_state(ChangeBatch([handoff_change(requests.hand_off)]))

    # --- results and tickets --------------------------------------------------------------------

    async def finish(
        self, state: CallState, executed: Executed, *, resumed: bool = False
    ) -> CallStatus:
        """Add the call's result, or open a ticket if the tool suspended the call."""
        self._has_results = True
        if executed.span is not None:
            self._spans[state.call.id] = executed.span
        applied = apply_changes(self.run, state, executed, self.parallel_changes)
        if applied.result.suspension is not None:
            # Its state changes are saved by the same commit, and must not be applied again.
            self.keep_unreported(state, Executed(applied.result))
            suspension = applied.result.suspension
            kind = kind_of_suspension(suspension)
            if kind is TicketKind.OUTCOME_UNKNOWN:
                await self.open_outcome_ticket(state, None, lost=suspension.message)
            else:
                await self.open_ticket(state, suspension, kind)
            return CallStatus.SUSPENDED
        try:
            self._keep_requests(
                await call_hooks(
                    self.run,
                    Phase.AFTER_TOOL_EXECUTE,
                    call=with_effective_arguments(state),
                    result=applied.result,
                )
            )
        finally:
            self._add_result(state, applied, resumed=resumed)
        return applied.status

    def interrupt(self, state: CallState) -> None:
        """Report the call as interrupted."""
        self._add_result(state, Executed(ToolResult.error(state.call.name, INTERRUPTED)))

    def close(self, state: CallState) -> None:
        """Report a call of a run that ends: with its result if that is known, else as interrupted."""
        if state.unreported_result is None or state.unreported_result.suspension is not None:
            self.interrupt(state)
        else:
            self._add_result(state, executed_before(self.run, state, state.unreported_result))

    def keep_unreported(self, state: CallState, executed: Executed) -> None:
        """Save a result with the next commit, although it isn't reported yet."""
        kept = UnreportedOutcome(executed.result, updates_of(executed.changes))
        self.changed[state.call.id] = replace(
            state, status=executed.status, unreported_outcome=kept
        )

    def cancel(self, state: CallState, payload: Json, reason: str | None) -> None:
        """Cancel the call as a person decided; their payload or reason is its result."""
        result = payload if payload is not None else reason
        cancelled = Executed(ToolResult.success(state.call.name, result))
        self._add_result(state, cancelled, CallStatus.CANCELLED, resumed=True)

    async def open_ticket(
        self,
        state: CallState,
        suspension: SuspensionRequest,
        kind: TicketKind,
        evidence: JsonObject | None = None,
    ) -> None:
        """Add a ticket, which is opened when the run suspends."""
        self._positions[state.call.id] = state.position
        self.new_tickets.append(
            await call_ticket(self.run, state, suspension, kind, evidence, others=self.new_tickets)
        )

    async def open_outcome_ticket(
        self, state: CallState, why: str | None, *, lost: str = "its worker was lost"
    ) -> None:
        """Ask a person what the call did, because its worker or its connection was lost."""
        request, evidence = await outcome_unknown(self.run, state, why, lost)
        await self.open_ticket(state, request, TicketKind.OUTCOME_UNKNOWN, evidence)

    def hold_for_limit(self, state: CallState, limit_ticket: Ticket) -> None:
        """Hold the call back until the limit is raised; one ticket is enough for all held calls."""
        self.limit_ticket = limit_ticket
        self.held.add(state.call.id)
        if state.status is not CallStatus.SUSPENDED:
            self._positions[state.call.id] = state.position
            self.new_tickets.append(call_held_by_limit(self.run, state, limit_ticket))

    @property
    def opened(self) -> list[Ticket]:
        """The tickets that the suspending commit opens."""
        tickets = [each.ticket for each in self.new_tickets if each.ticket is not None]
        return tickets if self.limit_ticket is None else [*tickets, self.limit_ticket]

    @property
    def applied_tickets(self) -> list[TicketKey]:
        """Tickets that must not be applied again."""
        return [*self.applied, *self.reopened]

    def with_tickets(self) -> tuple[list[Message], list[AgentEvent]]:
        """The messages and events of the suspending commit."""
        messages = [*self.messages, *(each.placeholder for each in self.new_tickets)]
        events = [(_subject(event), event) for event in self.pending_events]
        events += [
            (each.state.call.id, event) for each in self.new_tickets for event in each.events
        ]
        if self.run.in_step:
            # Results and tickets of one step come in the order of its calls.
            messages.sort(key=self._position_of)
            events.sort(key=lambda each: self._positions[each[0]])
        ordered = [event for _, event in events]
        if self.limit_ticket is not None:
            ordered.append(TicketOpened(ticket_to_json(self.limit_ticket)))
        return messages, ordered

    def withdraw_tickets(self) -> None:
        """Drop the new tickets, because the run ends; their calls are interrupted."""
        withdrawn, self.new_tickets = self.new_tickets, []
        self.limit_ticket = None
        for each in withdrawn:
            self.interrupt(each.state)
        self.messages.sort(key=self._position_of)
        self.pending_events.sort(key=lambda event: self._positions[_subject(event)])

    # --- saving ---------------------------------------------------------------------------------

    async def save(self, *, completes_step: bool = False, calls_settled: bool = False) -> None:
        """Commit everything since the last save; the run keeps executing."""
        if not (
            self.messages or self.pending_events or self.changed or self.applied or calls_settled
        ):
            return
        answer = await self.run.save(
            self.messages,
            events=self.pending_events,
            calls=tuple(self.changed.values()),
            applied=self.applied,
            completes_step=completes_step,
            calls_settled=calls_settled,
        )
        if isinstance(answer, CheckpointSaved):
            self.messages, self.pending_events, self.applied = [], [], []
            self.changed.clear()
            self._has_results = False

    def _add_result(
        self,
        state: CallState,
        executed: Executed,
        status: CallStatus | None = None,
        *,
        resumed: bool = False,
    ) -> None:
        status = status or executed.status
        message = self._add_message(state, executed.result, status)
        event = ToolCallResumed if resumed else ToolCallDone
        shown = executed.result.to_json(status)
        span = self._spans.get(state.call.id)
        self.pending_events.append(
            event(
                tool_call_id=state.call.id,
                message_id=message.id,
                result=shown,
                started_at=None if span is None else format_timestamp(span.started_at),
                duration_ms=None if span is None else round(span.seconds * 1000),
            )
        )

    def _position_of(self, message: Message) -> tuple[bool, int]:
        """Sorts the assistant message first, then results in the order of their calls, then notes."""
        call_id = message.tool_call_id
        position = len(self._positions) if call_id is None else self._positions[call_id]
        return message.role is not Role.ASSISTANT, position

    def _add_message(self, state: CallState, result: ToolResult, status: CallStatus) -> Message:
        message = result.as_message(
            self.run.new_message_id(), state.call.id, status, state.edited_arguments
        )
        self.messages.append(message)
        self._positions[state.call.id] = state.position
        kept = None if self.parallel_changes is None else self.parallel_changes.outcome_of(state)
        self.changed[state.call.id] = replace(state, status=status, unreported_outcome=kept)
        telemetry.tool_calls.labels(self._label(state.call.name), status.value).inc()
        return message

    def _label(self, tool_name: str) -> str:
        """The tool's label in metrics. Frontend and unknown tools share one each: their names are unbounded."""
        tool = self.run.agent.tools.get(tool_name)
        if tool is None:
            return UNKNOWN_TOOL
        return FRONTEND_TOOL if tool.descriptor.is_frontend else tool_name


def _subject(event: AgentEvent) -> CallId:
    """The call that an event is about."""
    match event:
        case ToolCallDone(id) | ToolCallResumed(id):
            return CallId(id)
        case _:
            raise TypeError(f"a batch of tool calls has no event {event.event_type}")
