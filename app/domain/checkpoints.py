"""Checkpoints: what one commit of an executing run writes, and how its output range is found."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from app.domain.children.background_tasks import NewTask
from app.domain.events.command_events import PauseRequested, RolledBack
from app.domain.events.run_events import AgentEvent
from app.domain.ids import RunId, Tenant, ThreadId, TicketKey
from app.domain.json_values import JsonObject
from app.domain.runs.pauses import NewPause
from app.domain.runs.runs import Done, MessageInput, MessageOutput, Running, Usage, Waiting
from app.domain.threads.messages import LoggedMessage, Message, MessageRange, Role, Visibility
from app.domain.tickets.tickets import Ticket
from app.domain.tools.tool_calls import CallState, CallStatus


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """An event and the step it was said in."""

    event: AgentEvent
    step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One atomic write of a run's progress, fenced by its attempt.

    Only what is new: `messages` are appended from `next_seq` on, which is also the guard that nobody
    else has appended meanwhile. `calls` are those that changed; once all are settled, nothing needs to
    be kept of them. `state` says where the run stands afterwards.
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
    """The run's input, where its row names none yet."""
    thread_state: JsonObject | None = None
    """What the thread remembers from now on; None when that hasn't changed."""
    calls: tuple[CallState, ...] = ()
    calls_settled: bool = False
    opened: tuple[Ticket, ...] = ()
    applied: tuple[TicketKey, ...] = ()
    void: tuple[TicketKey, ...] = ()
    """Questions that nobody needs to answer any more."""
    tasks: tuple[NewTask, ...] = ()
    pending_events: tuple[PendingEvent, ...] = ()
    notifies_remote: bool = False
    """The agent lives elsewhere, and has to be told that nobody wants its work any more."""
    owes_run_end: bool = False
    """The run ends without its agent's code: a worker has to call the `run_end` hooks afterwards."""
    parent_run_id: RunId | None = None
    """The run that is told when this one ends or rests."""
    pause: NewPause | None = None
    """A plugin's pause, which the commit writes unless the run has a pause request already."""

    @property
    def is_progress(self) -> bool:
        """Whether anything has become of the run. That calls were handed to their tools, perhaps once
        more, is nothing yet: whatever takes its worker along each time must not count as getting on."""
        only_marks = self.calls and all(call.status is CallStatus.RUNNING for call in self.calls)
        return not (
            only_marks
            and isinstance(self.state, Running)
            and not (self.messages or self.applied or self.tasks or self.calls_settled)
        )


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """It is durable. What others have put before the run, and still do for it, as of that instant."""

    unread_inputs: int = 0
    open_tasks: int = 0
    rolled_back: RolledBack | None = None
    """The run has ended, and was taken out of the conversation in the same commit."""
    is_paused: bool = False
    """The run's row has a pause request."""
    pause_requested: PauseRequested | None = None
    """This commit has written that request for a plugin."""


@dataclass(frozen=True, slots=True)
class DecidedConcurrently:
    """Nothing was written: the run was about to wait for a ticket that has been decided by now, or to take
    one back."""


@dataclass(frozen=True, slots=True)
class InputOrTasksPending:
    """Nothing was written: the run was about to end by itself, to wait for its tasks or to pause, and may
    not.

    Something waits to be read, or tasks still run, or there are none left to wait for, or the pause
    request was removed.
    """

    unread_inputs: int
    open_tasks: int
    is_paused: bool = False


CheckpointAnswer: TypeAlias = CheckpointSaved | DecidedConcurrently | InputOrTasksPending


@dataclass(frozen=True, slots=True)
class OutputRanges:
    output: MessageOutput
    messages: tuple[LoggedMessage, ...]


def materialize_output(
    log: Sequence[LoggedMessage],
    *,
    run_id: RunId,
    input: MessageInput | None,
    previous: MessageOutput,
    step_count: int,
    input_message_count: int = 0,
) -> OutputRanges:
    """What of `log` this run has produced, with new messages stamped as its own.

    `log` is the whole log or just its new end: what `previous` already names is carried over, so the
    answer is the same. Existing stamps are never touched; internal messages aren't output.
    """
    start = _output_start(log, run_id, input, input_message_count)
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


def _output_start(
    log: Sequence[LoggedMessage],
    run_id: RunId,
    input: MessageInput | None,
    input_message_count: int,
) -> int:
    if input is not None and input.range is not None:
        return input.range.to_seq + 1
    for entry in log:
        if entry.message.run_id == run_id:
            return entry.seq
    return input_message_count + 1
