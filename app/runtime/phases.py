"""Phases: asking an agent's plugins, and taking in what they ask for.

All hooks of a phase look at one frozen state. What they change is committed together; a hook that wanted
to change what an earlier one has changed is asked again, on the state as it is by then.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from app.domain.errors import PluginFailed, StateError
from app.domain.ids import AgentId
from app.domain.rules.rules import Rule
from app.domain.runs.pauses import PLUGIN_PREFIX, NewPause
from app.domain.runs.rate_limits import AskedBy, TimedPause
from app.domain.runs.runs import RunRecord, Usage
from app.domain.runs.terminations import Termination
from app.domain.threads.messages import LoggedMessage
from app.runtime.active_run import ActiveRun
from app.runtime.agent import ResolvedAgent
from app.runtime.plugins import (
    OFFERED,
    HandOff,
    Hook,
    HookView,
    Pause,
    Phase,
    Request,
    Stop,
    SuspendRun,
)
from app.runtime.state import Change, ChangeBatch, StateStore

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class HookRequests:
    """What plugins want of the run, in their order. Changes of state are made already."""

    requests: tuple[Request, ...] = ()

    def all_of(self, kind: type[R]) -> list[R]:
        return [request for request in self.requests if isinstance(request, kind)]

    @property
    def stop(self) -> Termination | None:
        """The first wish for an end counts."""
        stops = self.all_of(Stop)
        return stops[0].termination if stops else None

    @property
    def pause(self) -> TimedPause | None:
        """The longest wait that was asked for."""
        waits = self.all_of(SuspendRun)
        if not waits:
            return None
        longest = max(waits, key=lambda wait: wait.seconds)
        return TimedPause(
            seconds=longest.seconds,
            asked_by=AskedBy.PLUGIN,
            source=longest.plugin,
            detail=longest.detail,
        )

    @property
    def hand_off(self) -> AgentId | None:
        """The last wish for another agent counts."""
        wishes = self.all_of(HandOff)
        return wishes[-1].agent_id if wishes else None


NO_REQUESTS = HookRequests()

_UNBREAKABLE = frozenset({Phase.AFTER_TOOL_EXECUTE, Phase.STEP_END})
"""Here results are known that nobody has saved yet: a wish that broke in would lose them."""


async def call_hooks(run: ActiveRun, phase: Phase, **at_hand: Any) -> HookRequests:
    """Ask the hooks of a phase; a wish from outside breaks those that take long.

    `at_hand` are the fields of HookView that this phase has besides the usual ones.
    """
    hooks = run.agent.plugins.hooks(phase)
    if not hooks:
        return NO_REQUESTS
    if phase in _UNBREAKABLE:
        return await _asked(run, phase, hooks, at_hand)
    async with run.interruption.interruptible():
        return await _asked(run, phase, hooks, at_hand)


class HookedRun(Protocol):
    """A run as its hooks need it: at work, or ended before."""

    @property
    def record(self) -> RunRecord: ...
    @property
    def agent(self) -> ResolvedAgent: ...
    @property
    def log(self) -> Sequence[LoggedMessage]: ...
    @property
    def state(self) -> StateStore: ...
    @property
    def steps(self) -> int: ...
    @property
    def usage(self) -> Usage: ...
    @property
    def active_seconds(self) -> float: ...
    async def remembered_rules(self) -> Sequence[Rule]: ...
    def change_state(self, batch: ChangeBatch) -> None: ...


async def call_run_end_hooks(run: HookedRun) -> None:
    """Let the plugins clean up, also of a run that was interrupted; they can only change state."""
    hooks = run.agent.plugins.hooks(Phase.RUN_END)
    if hooks:
        await _asked(run, Phase.RUN_END, hooks, {})


async def _asked(
    run: HookedRun, phase: Phase, hooks: Sequence[tuple[str, Hook]], at_hand: dict[str, Any]
) -> HookRequests:
    answers = await _answers(hooks, _view(run, phase, at_hand))
    accepted: list[Request] = []
    again: list[tuple[str, Hook]] = []
    changed: frozenset[str] = frozenset()
    for hook, requests in zip(hooks, answers, strict=True):
        keys = _batch(requests).exclusive_keys
        if keys & changed:
            again.append(hook)
        else:
            changed |= keys
            accepted += requests
            _note_pause(run, hook, requests)
    _commit(run, phase, accepted)
    for hook in again:
        [requests] = await _answers([hook], _view(run, phase, at_hand))
        _commit(run, phase, requests)
        accepted += requests
        _note_pause(run, hook, requests)
    return HookRequests(tuple(each for each in accepted if not isinstance(each, Change)))


def _note_pause(run: HookedRun, hook: tuple[str, Hook], requests: Sequence[Request]) -> None:
    """Let the next commit write a plugin's pause; the first one counts. A run that has ended can't pause."""
    if not isinstance(run, ActiveRun):
        return
    plugin, _ = hook
    for request in requests:
        if isinstance(request, Pause) and not run.wants_pause:
            run.new_pause = NewPause(PLUGIN_PREFIX + plugin, request.reason)


def _view(run: HookedRun, phase: Phase, at_hand: dict[str, Any]) -> HookView:
    return HookView(
        phase=phase,
        run_id=run.record.id,
        thread_id=run.record.thread_id,
        agent=run.agent.spec,
        state=run.state.snapshot,
        log=tuple(run.log),
        steps=run.steps,
        usage=run.usage,
        active_seconds=run.active_seconds,
        remembered=run.remembered_rules,
        **at_hand,
    )


async def _answers(
    hooks: Sequence[tuple[str, Hook]], view: HookView
) -> Sequence[Sequence[Request]]:
    if len(hooks) == 1:
        return [await _answer(*hooks[0], view)]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_answer(name, hook, view)) for name, hook in hooks]
    except* PluginFailed as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


async def _answer(plugin: str, hook: Hook, view: HookView) -> Sequence[Request]:
    try:
        requests = await hook(view)
    except Exception as error:  # a plugin's code
        raise PluginFailed(plugin, view.phase.value, f"{type(error).__name__}: {error}") from error
    for request in requests:
        if not isinstance(request, OFFERED[view.phase]):
            raise PluginFailed(
                plugin, view.phase.value, f"{type(request).__name__} can't be asked for there"
            )
    return [
        replace(request, plugin=plugin) if isinstance(request, SuspendRun) else request
        for request in requests
    ]


def _commit(run: HookedRun, phase: Phase, requests: Sequence[Request]) -> None:
    try:
        run.change_state(_batch(requests))
    except StateError as error:
        raise PluginFailed("state", phase.value, str(error)) from error


def _batch(requests: Sequence[Request]) -> ChangeBatch:
    return ChangeBatch([request for request in requests if isinstance(request, Change)])
