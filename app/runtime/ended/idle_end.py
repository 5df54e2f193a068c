"""The end of a run that no worker executes, made by a command or by the sweeper.

It goes through the same code as the end of a run at work, so that both look alike: results for open calls,
a snapshot of the state, `run_finish` with the last words. One thing is left for later: the agent's code
isn't here, so a follow-up has a worker call the `run_end` hooks.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from app.clock import Clock
from app.domain.children.background_tasks import TaskStatus
from app.domain.events.run_events import AgentEvent
from app.domain.ids import AgentId, AgentVersion, CallId, TaskId, TicketKey
from app.domain.json_values import JsonObject
from app.domain.runs.runs import RunRecord
from app.domain.runs.terminations import Termination
from app.domain.threads.messages import LoggedMessage
from app.domain.tickets.tickets import Ticket
from app.domain.tools.tool_calls import CallState
from app.runtime.active_run import ActivationStart, ActiveRun
from app.runtime.agent import Found, UnknownAgentVersion, placeholder_agent
from app.runtime.cancellation import Interruption
from app.runtime.endings import close_open_calls, finish
from app.runtime.ports import CheckpointStore


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRun:
    """A run that no worker executes, as its end needs it. The caller holds the locks of its rows."""

    record: RunRecord
    next_seq: int
    last_words: LoggedMessage | None
    """The last message with a text that the assistant has written in this run."""
    thread_state: JsonObject
    clock: Clock
    calls: Sequence[CallState] = ()
    """The calls of its open or suspended step."""
    answered: Sequence[TicketKey] = ()
    """Tickets that were answered or have expired, and that no worker has applied."""

    @property
    def log(self) -> list[LoggedMessage]:
        return [] if self.last_words is None else [self.last_words]


async def end_idle_run(idle: IdleRun, store: CheckpointStore, termination: Termination) -> None:
    """Commit the end of a run of our own loop, in the shape of an end at work."""
    record = idle.record
    run = ActiveRun(
        record=record,
        agent=placeholder_agent(record.agent_id),
        events=UNUSED,
        store=store,
        interruption=Interruption(),
        clock=idle.clock,
        log=idle.log,
        next_seq=idle.next_seq,
        start=ActivationStart(calls=idle.calls),
        answers=UNUSED,
        inbox=UNUSED,
        tasks=UNUSED,
        agents=UNUSED,
        thread_state=idle.thread_state,
    )
    last = close_open_calls(run)
    last.applied.extend(idle.answered)
    await finish(run, termination, last)


class _Unused:
    """The ports that only an executing run uses."""

    def emit(self, event: AgentEvent, step: int | None) -> None:
        raise AssertionError(f"a run that isn't executed has no live {event.event_type}")

    async def wait_for_capacity(self) -> None:
        """Nothing is emitted, so nothing is waited for."""

    async def of_call(self, step_index: int, call_id: CallId) -> Sequence[Ticket]:
        return ()

    async def unapplied(self) -> Sequence[Ticket]:
        return ()

    async def names_used(self) -> Collection[str]:
        return ()

    async def enter_log(self, next_seq: int) -> Sequence[LoggedMessage]:
        return ()

    async def cancel(self, task_id: TaskId) -> TaskStatus | None:
        return None

    async def send(self, task_id: TaskId, text: str, key: str) -> TaskStatus | None:
        return None

    async def at_version(self, agent_id: AgentId, version: AgentVersion | None) -> Found:
        return UnknownAgentVersion("a run that isn't executed has no agents")


UNUSED = _Unused()
