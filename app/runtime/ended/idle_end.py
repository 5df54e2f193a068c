"""The end of a run that no worker executes, made by a command or by the sweeper.

It uses the code of the loop, so both ends look alike: results for open calls, a state snapshot and
`run_finish` with the last text. The agent's code isn't loaded here, so a follow-up lets a worker call the
`run_end` hooks.
"""

from collections.abc import Collection, Sequence

from msgspec import Struct

from app.clock import Clock
from app.domain.children.background_tasks import TaskStatus
from app.domain.events.agent_events import AgentEvent
from app.domain.ids import AgentId, AgentVersion, CallId, TaskId, TicketKey
from app.domain.json_values import JsonObject
from app.domain.runs.runs import RunRecord
from app.domain.runs.terminations import Termination
from app.domain.threads.messages import LoggedMessage
from app.domain.tickets.tickets import Ticket
from app.domain.tools.tool_calls import CallState
from app.runtime.active_run import ActiveRun
from app.runtime.agent import AgentLookup, UnknownAgentVersion, placeholder_agent
from app.runtime.cancellation import Interruption
from app.runtime.endings import close_open_calls, finish
from app.runtime.ports.persistence import CheckpointStore
from app.runtime.run_session import ActivationStart


class IdleRun(Struct, frozen=True, kw_only=True):
    """The data that the end of an idle run needs. The caller holds the locks of its rows."""

    record: RunRecord
    next_seq: int
    last_text: LoggedMessage | None
    """The assistant's last message with text in this run."""
    thread_state: JsonObject
    clock: Clock
    calls: Sequence[CallState] = ()
    """The calls of its open or suspended step."""
    answered: Sequence[TicketKey] = ()
    """Decided or expired tickets that no worker has applied."""

    @property
    def log(self) -> list[LoggedMessage]:
        return [] if self.last_text is None else [self.last_text]


async def end_idle_run(idle: IdleRun, store: CheckpointStore, termination: Termination) -> None:
    """Commit the end of a run, as the loop would."""
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
        """Returns at once: an idle run emits nothing."""

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

    async def at_version(self, agent_id: AgentId, version: AgentVersion | None) -> AgentLookup:
        return UnknownAgentVersion("a run that isn't executed has no agents")


UNUSED = _Unused()
