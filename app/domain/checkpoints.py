"""Checkpoints: the contents of one commit of an executing run, and the range of its output."""

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from app.domain.children.background_tasks import NewTask
from app.domain.events.agent_events import AgentEvent
from app.domain.events.run_events import PauseRequested, RolledBack, RunFinish
from app.domain.events.run_finish import waiting_for_person
from app.domain.ids import RunId, Tenant, ThreadId, TicketKey
from app.domain.json_values import JsonObject
from app.domain.runs.pauses import NewPause
from app.domain.runs.runs import Done, MessageInput, MessageOutput, Running, Usage, Waiting
from app.domain.threads.messages import LoggedMessage, Message, MessageRange, Role, Visibility
from app.domain.tickets.tickets import Ticket
from app.domain.tools.tool_calls import CallState, CallStatus
from app.domain.usage.billed_requests import BilledRequest


class PendingEvent(Struct, frozen=True):
    """An event and the step that emitted it."""

    event: AgentEvent
    step: int | None


class Checkpoint(Struct, frozen=True, kw_only=True):
    """One atomic write of a run's progress, fenced by its attempt.

    `messages` are appended at `next_seq`; the write fails if another process has appended messages
    meanwhile. `calls` are the changed call states; with `calls_settled` all of the step are deleted. `state`
    is the run's state after the commit.
    """

    tenant: Tenant
    thread_id: ThreadId
    run_id: RunId
    attempt: int
    next_seq: int
    messages: tuple[Message, ...]
    output: MessageOutput
    state: Running | Waiting | Done
    steps: int
    usage: Usage
    run_state: JsonObject
    inferred_input: MessageInput | None = None
    """The run's input, if its row has none yet."""
    thread_state: JsonObject | None = None
    """The new state of the thread; None if it hasn't changed."""
    calls: tuple[CallState, ...] = ()
    calls_settled: bool = False
    opened: tuple[Ticket, ...] = ()
    applied: tuple[TicketKey, ...] = ()
    void: tuple[TicketKey, ...] = ()
    """Tickets that need no answer any more."""
    tasks: tuple[NewTask, ...] = ()
    pending_events: tuple[PendingEvent, ...] = ()
    notifies_remote: bool = False
    """Whether a follow-up has to abort the run at its remote server."""
    owes_run_end: bool = False
    """Whether a follow-up has to call the `run_end` hooks, because the run ends without its agent's code."""
    parent_run_id: RunId | None = None
    """The parent run, which gets a report when this run ends or suspends."""
    pause: NewPause | None = None
    """A plugin's pause, which is written unless the run has a pause request already."""
    billed: tuple[BilledRequest, ...] = ()
    """New rows of the usage ledger."""

    @property
    def is_progress(self) -> bool:
        """Whether the run has made progress. Marking calls as begun is none, because a call that crashes
        its worker each time would count as progress."""
        only_marks = self.calls and all(call.status is CallStatus.RUNNING for call in self.calls)
        return not (
            only_marks
            and isinstance(self.state, Running)
            and not (self.messages or self.applied or self.tasks or self.calls_settled)
        )


class CheckpointSaved(Struct, frozen=True):
    """The commit is durable. Has the run's pending inputs and open tasks as of the commit."""

    unread_inputs: int = 0
    open_tasks: int = 0
    rolled_back: RolledBack | None = None
    """Set if the run ended and the same commit took its messages out of the conversation."""
    is_paused: bool = False
    """Whether the run's row has a pause request."""
    pause_requested: PauseRequested | None = None
    """The pause request, if this commit wrote it for a plugin."""
    tickets_below: tuple[Ticket, ...] = ()
    """Open tickets of runs below, if this commit suspended the run."""


class DecidedConcurrently(Struct, frozen=True):
    """Nothing was written: a ticket that the run would wait for, or void, was decided meanwhile."""


class InputOrTasksPending(Struct, frozen=True):
    """Nothing was written: the run may not finish, wait for its tasks or pause now.

    It has pending inputs, or its tasks still run, or none is left to wait for, or the pause request was
    removed.
    """

    unread_inputs: int
    open_tasks: int
    is_paused: bool = False


def finish_as_saved(pending: PendingEvent, saved: CheckpointSaved) -> PendingEvent:
    """The `run_finish` of a suspension with what only its commit knows; other events as they are."""
    finish = pending.event
    if not isinstance(finish, RunFinish) or finish.waiting is None:
        return pending
    if not (saved.is_paused or saved.tickets_below):
        return pending
    return PendingEvent(waiting_for_person(finish, saved.tickets_below), pending.step)


CheckpointAnswer: TypeAlias = CheckpointSaved | DecidedConcurrently | InputOrTasksPending


class OutputRanges(Struct, frozen=True):
    output: MessageOutput
    messages: tuple[LoggedMessage, ...]


def materialize_output(
    log: Sequence[LoggedMessage],
    *,
    run_id: RunId,
    input: MessageInput | None,
    previous: MessageOutput,
    step_count: int,
) -> OutputRanges:
    """The run's output, and `log` with the new messages stamped with run and step.

    `log` is the whole log or only its new end; both give the same output, because `previous` is carried
    over. Existing stamps don't change, and internal messages aren't output.
    """
    start = _output_start(log, run_id, input)
    step_index = step_count - 1 if step_count > 0 else None
    hull = previous.range
    ids = list(previous.message_ids)
    known = set(ids)
    stamped: list[LoggedMessage] = []
    for entry in log:
        message = entry.message
        is_new = entry.seq >= start and message.role in (Role.ASSISTANT, Role.TOOL)
        if message.visibility is Visibility.INTERNAL or not (is_new or message.run_id == run_id):
            stamped.append(entry)
            continue
        if is_new:
            message = message.produced_by(run_id, step_index)
        stamped.append(LoggedMessage(entry.seq, message, entry.created_at))
        hull = MessageRange.of(entry.seq, entry.seq) if hull is None else hull.hull(entry.seq)
        if message.id not in known:
            known.add(message.id)
            ids.append(message.id)
    return OutputRanges(MessageOutput(hull, tuple(ids)), tuple(stamped))


def _output_start(log: Sequence[LoggedMessage], run_id: RunId, input: MessageInput | None) -> int:
    if input is not None and input.range is not None:
        return input.range.to_seq + 1
    for entry in log:
        if entry.message.run_id == run_id:
            return entry.seq
    return 1
