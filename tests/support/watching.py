"""An execution with numbered points: one at each place where the loop waits for a port.

At a point a test can kill the worker, take its run over, cancel, hand over, or decide a ticket.
Points do not depend on time, so the same script ends in the same rows each time.
"""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from app.domain.checkpoints import Checkpoint, CheckpointAnswer, CheckpointSaved
from app.domain.events.agent_events import AgentEvent
from app.domain.ids import CallId
from app.domain.json_values import Json
from app.domain.tickets.tickets import Ticket
from app.domain.tools.tool_calls import (
    Effect,
    ResumeMode,
    SuspensionRequest,
    ToolDescriptor,
    ToolResult,
)
from app.llm.scripted.model import Script, ScriptedModel
from app.runtime.active_run import ActiveRun
from app.runtime.cancellation import Interruption
from app.runtime.ports.models import ModelChunk, ModelRequest
from app.runtime.ports.persistence import CheckpointStore, EventEmitter, TicketAnswers
from app.runtime.ports.tool_context import ToolContext

TIMEOUT_SECONDS = 60.0


class Witness(Protocol):
    """Gets each step of the loop, and raises AssertionError when a rule is broken."""

    def asked(self, agent: str, request: ModelRequest) -> None: ...
    def committed(self, checkpoint: Checkpoint) -> None: ...
    def handed(self, arguments: Json, context: ToolContext) -> None: ...
    def returned(self, result: ToolResult, context: ToolContext) -> None: ...


class WatchableEmitter(Protocol):
    """The pending events of a run, which are not committed yet."""

    async def flush(self) -> None:
        """Commit the pending events."""

    def hold(self) -> None:
        """Leave the pending events to the next checkpoint."""

    def drop(self) -> None:
        """Lose the pending events together with the worker."""


Stimulus = Callable[["Watch", bool], Awaitable[None]]
"""What happens at a point; the flag tells whether a stop request can interrupt the work there."""


@dataclass(slots=True)
class Watch:
    """The points of one execution, and what happens at them."""

    witness: Witness
    stimuli: Mapping[int, Stimulus]
    is_eager: bool
    """Events are committed at the next point instead of with the next checkpoint, and a stop request is
    delivered at the next point instead of during slow work."""
    interruption: Interruption = field(default_factory=Interruption)
    emitter: WatchableEmitter = field(init=False)
    points: int = 0
    is_dead: bool = False
    objections: list[AssertionError] = field(default_factory=list)
    """Objections to tool calls. They are kept here because the loop could treat them as tool errors."""
    _task: "asyncio.Task[Any] | None" = None

    async def run(self, work: Awaitable[Any]) -> Any:
        """The result of the work; None when its worker was killed."""

        failures: list[Exception] = []

        async def at_work() -> Any:
            try:
                return await work
            except Exception as error:  # noqa: BLE001  out of the group it goes as it is
                failures.append(error)

        async with asyncio.timeout(TIMEOUT_SECONDS), asyncio.TaskGroup() as group:
            self._task = group.create_task(at_work())
        for failure in (*self.objections, *failures):
            raise failure
        return None if self._task.cancelled() else self._task.result()

    async def point(self, *, breakable: bool = False, flushes: bool = True) -> None:
        if self.is_dead:
            await self._never()
        self.points += 1
        if self.is_eager and flushes:
            await self.emitter.flush()
        stimulus = self.stimuli.get(self.points)
        if stimulus is not None:
            await stimulus(self, breakable)
        if breakable and self.is_eager and self.interruption.requested is not None:
            await self.a_moment()

    async def a_moment(self) -> None:
        """Let the event loop deliver a stop request."""
        loop = asyncio.get_running_loop()
        for _ in range(3):
            turned = asyncio.Event()
            loop.call_soon(turned.set)
            await turned.wait()

    async def kill(self) -> None:
        """Stop the worker as kill -9 does: the task at this point never continues."""
        assert self._task is not None
        self.is_dead = True
        self.emitter.drop()
        self._task.cancel()
        await self._never()

    async def hang(self) -> None:
        """Slow work that ends only by a stop request."""
        async with asyncio.timeout(TIMEOUT_SECONDS / 2):
            await self._never()

    async def _never(self) -> None:
        await asyncio.Event().wait()


@dataclass(slots=True)
class WatchedEmitter:
    """The store, the events and the answers of an execution, with a point around each."""

    watch: Watch
    store: CheckpointStore
    events: EventEmitter
    answers: TicketAnswers

    async def commit(self, checkpoint: Checkpoint) -> CheckpointAnswer:
        # Pending events are committed with this checkpoint.
        self.watch.emitter.hold()
        await self.watch.point(flushes=False)
        answer = await self.store.commit(checkpoint)
        if isinstance(answer, CheckpointSaved):
            self.watch.witness.committed(checkpoint)
        await self.watch.point()
        return answer

    async def of_call(self, step_index: int, call_id: CallId) -> Sequence[Ticket]:
        await self.watch.point()
        return await self.answers.of_call(step_index, call_id)

    async def unapplied(self) -> Sequence[Ticket]:
        await self.watch.point()
        return await self.answers.unapplied()

    async def names_used(self) -> Collection[str]:
        await self.watch.point()
        return await self.answers.names_used()

    def emit(self, event: AgentEvent, step: int | None) -> None:
        if not self.watch.is_dead:
            self.events.emit(event, step)

    async def wait_for_capacity(self) -> None:
        if self.watch.is_eager:
            await self.watch.emitter.flush()
        await self.events.wait_for_capacity()


@dataclass(slots=True)
class WatchedModel:
    """Plays a script, with a point before each chunk. It has the name of its agent."""

    name: str
    script: Script
    watch: Watch

    @asynccontextmanager
    async def stream(
        self, request: ModelRequest
    ) -> AsyncIterator[AsyncIterator[Sequence[ModelChunk]]]:
        self.watch.witness.asked(self.name, request)
        async with (
            ScriptedModel(self.name, self.script).stream(request) as chunks,
            aclosing(self._paced(chunks)) as paced,  # type: ignore[type-var]  # is a generator
        ):
            yield paced

    async def _paced(
        self, chunks: AsyncIterator[Sequence[ModelChunk]]
    ) -> AsyncIterator[Sequence[ModelChunk]]:
        await self.watch.point(breakable=True)
        async for chunk in chunks:
            yield chunk
            await self.watch.point(breakable=True)


@dataclass(slots=True, kw_only=True)
class WatchedTool:
    """A tool with a point before and after its work.

    It suspends the first `asks` executions of each call instead of answering.
    """

    name: str
    effect: Effect
    asks: int = 0
    fails: bool = False
    mode: ResumeMode = ResumeMode.REPLAY_TOOL_CALL
    times: dict[str, int] = field(default_factory=dict)
    watch: Watch | None = None

    @property
    def descriptor(self) -> ToolDescriptor:
        return ToolDescriptor(
            name=self.name, description=self.name, parameters={}, effect=self.effect
        )

    def invalid_arguments(self, arguments: Json) -> str | None:
        return None if isinstance(arguments, dict) else "an object is needed"

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        assert self.watch is not None
        await self.watch.point(breakable=True)
        try:
            self.watch.witness.handed(arguments, context)
        except AssertionError as objection:
            self.watch.objections.append(objection)
            await self.watch.kill()
        times = self.times[context.idempotency_key] = 1 + self.times.get(context.idempotency_key, 0)
        context.stream_output(f"{self.name} at work")
        result = self._result(times, arguments, context.call_id)
        await self.watch.point(breakable=True)
        self.watch.witness.returned(result, context)
        return result

    def _result(self, times: int, arguments: dict[str, Any], call_id: CallId) -> ToolResult:
        if times <= self.asks:
            asked = SuspensionRequest(f"Question {times}?", action="ask", resume_mode=self.mode)
            return ToolResult.suspended(self.name, asked)
        if self.fails:
            return ToolResult.error(self.name, f"{self.name} can't do {call_id}")
        return ToolResult.success(self.name, {"did": call_id, "with": arguments, "times": times})


def watch_over(
    run: ActiveRun,
    watch: Watch,
    tools: Iterable[WatchedTool],
    emitter: WatchableEmitter,
) -> None:
    """Put points around all ports of a loaded run."""
    watch.emitter = emitter
    watched = WatchedEmitter(watch, run.store, run.events, run.answers)
    run.store = run.events = run.answers = watched
    for tool in tools:
        tool.watch = watch
