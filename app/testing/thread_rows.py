"""The rows of one thread in memory. A checkpoint changes them as it changes the tables."""

from collections.abc import Collection, Sequence
from datetime import datetime

from app.clock import SystemClock
from app.domain.checkpoints import Checkpoint, PendingEvent
from app.domain.children.background_tasks import NewTask
from app.domain.events.agent_events import AgentEvent, event_fields
from app.domain.events.run_events import PauseRequested
from app.domain.ids import ThreadId, TicketKey
from app.domain.json_values import JsonObject
from app.domain.runs.pauses import PauseRequest
from app.domain.runs.runs import Done, Running, RunRecord
from app.domain.structs import replace
from app.domain.threads.messages import LoggedMessage, Message
from app.domain.tickets.tickets import Ticket, TicketStatus, can_resume
from app.domain.tools.tool_calls import CallState, CallStatus


class ThreadRows:
    """A thread's log and events, and the record, calls and tickets of its newest run."""

    def __init__(self, thread_id: ThreadId) -> None:
        self.clock = SystemClock()
        self.thread_id = thread_id
        self.log: list[LoggedMessage] = []
        self.events: list[JsonObject] = []
        self.tickets: dict[TicketKey, Ticket] = {}
        self.calls: dict[tuple[int, str], tuple[CallState, datetime | None]] = {}
        self.thread_state: JsonObject = {}
        self.begun: list[NewTask] = []
        """Background tasks: nothing executes them here."""
        self.record: RunRecord

    def write(self, checkpoint: Checkpoint) -> None:
        """Apply one checkpoint, without its events."""
        self.mark_applied(checkpoint.applied)
        self.void_open(checkpoint.void)
        names = {one.name for one in self.tickets.values() if one.status is TicketStatus.OPEN}
        for ticket in checkpoint.opened:
            assert ticket.name not in names, "two open tickets of one name"
            names.add(ticket.name)
            self.tickets[ticket.id] = ticket
        self.append(checkpoint.messages)
        self.begun += checkpoint.tasks
        self._write_calls(checkpoint)
        if checkpoint.thread_state is not None:
            self.thread_state = checkpoint.thread_state
        state = checkpoint.state
        self.record = replace(
            self.record,
            state=self.record.state if isinstance(state, Running) else state,
            losses=0 if checkpoint.is_progress else self.record.losses,
            steps=checkpoint.steps,
            usage=checkpoint.usage,
            run_state=checkpoint.run_state,
            output=checkpoint.output,
            input=checkpoint.inferred_input or self.record.input,
        )
        if isinstance(state, Done):
            self.void_open()

    def write_pause(self, checkpoint: Checkpoint) -> PauseRequested | None:
        """Write a plugin's pause request and return its event; None if the run has a request already."""
        wanted = checkpoint.pause
        is_done = isinstance(checkpoint.state, Done)
        if wanted is None or is_done or self.record.pause is not None:
            return None
        self.record = replace(
            self.record, pause=PauseRequest(self.clock.now(), wanted.requested_by, wanted.reason)
        )
        return PauseRequested(wanted.requested_by, wanted.reason)

    def _write_calls(self, checkpoint: Checkpoint) -> None:
        if checkpoint.calls_settled:
            self.calls = {}
            return
        for state in checkpoint.calls:
            key = (state.step_index, state.call.id)
            before = self.calls.get(key, (state, None))[1]
            is_marked = state.status is CallStatus.RUNNING
            self.calls[key] = (state, self.clock.now() if is_marked else before)

    def log_events(self, pending: Sequence[PendingEvent]) -> None:
        for one in pending:
            event = {
                "seq": len(self.events) + 1,
                "thread_id": self.thread_id,
                "run_id": self.record.id,
                "event_type": one.event.event_type,
                **event_fields(one.event),
            }
            self.events.append(event if one.step is None else {**event, "step": one.step})

    def emit(self, event: AgentEvent) -> None:
        self.log_events([PendingEvent(event, None)])

    def unsettled(self) -> list[Ticket]:
        return [ticket for ticket in self.tickets.values() if ticket.is_unsettled]

    def has_answer(self, checkpoint: Checkpoint) -> bool:
        unused = [one for one in self.unsettled() if one.id not in checkpoint.applied]
        return can_resume([*unused, *checkpoint.opened])

    def step_progress(self) -> tuple[bool, int]:
        """Whether an activation of the newest run is open, and its newest step that was begun."""
        own = [event for event in self.events if event["run_id"] == self.record.id]
        last = {event["event_type"]: event["seq"] for event in own}
        begun = [event["step"] for event in own if event["event_type"] == "step_start"]
        is_open = "run_start" in last and last["run_start"] > last.get("run_finish", 0)
        return is_open, max(begun, default=0)

    def append(self, messages: Sequence[Message]) -> None:
        self.log += [
            LoggedMessage(len(self.log) + place, message)
            for place, message in enumerate(messages, 1)
        ]

    def mark_applied(self, keys: Sequence[TicketKey]) -> None:
        for key in keys:
            if self.tickets[key].applied_at is None:
                self.tickets[key] = replace(self.tickets[key], applied_at=self.clock.now())

    def void_open(self, only: Collection[TicketKey] | None = None) -> None:
        for key, ticket in self.tickets.items():
            if ticket.status is TicketStatus.OPEN and (only is None or key in only):
                self.tickets[key] = replace(ticket, status=TicketStatus.VOID)
