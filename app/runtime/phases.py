"""Phases: calls the hooks of an agent's plugins, and applies their requests.

All hooks of a phase see the same frozen state, and their changes are committed together. If two hooks
change the same exclusive key, the later hook is called again on the new state.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from app.domain.errors import PluginFailed, StateError
from app.domain.ids import AgentId
from app.domain.memories.memories import owner_for
from app.domain.rules.rules import Rule
from app.domain.runs.pauses import PLUGIN_PREFIX, NewPause
from app.domain.runs.rate_limits import PauseOrigin, TimedPause
from app.domain.runs.run_info import run_info
from app.domain.runs.runs import RunRecord, Usage
from app.domain.runs.terminations import Termination
from app.domain.structs import replace
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
from app.runtime.ports.memory import MemoryReader
from app.runtime.state import Change, ChangeBatch, StateStore

R = TypeVar("R")


class HookRequests(Struct, frozen=True):
    """The plugins' requests in their order, without state changes: those are applied already."""

    requests: tuple[Request, ...] = ()

    def all_of(self, kind: type[R]) -> list[R]:
        return [request for request in self.requests if isinstance(request, kind)]

    @property
    def stop(self) -> Termination | None:
        """The first request to stop."""
        stops = self.all_of(Stop)
        return stops[0].termination if stops else None

    @property
    def pause(self) -> TimedPause | None:
        """The longest requested pause."""
        waits = self.all_of(SuspendRun)
        if not waits:
            return None
        longest = max(waits, key=lambda wait: wait.seconds)
        return TimedPause(
            seconds=longest.seconds,
            origin=PauseOrigin.PLUGIN,
            source=longest.plugin,
            detail=longest.detail,
        )

    @property
    def hand_off(self) -> AgentId | None:
        """The last requested hand-off."""
        hand_offs = self.all_of(HandOff)
        return hand_offs[-1].agent_id if hand_offs else None


NO_REQUESTS = HookRequests()

_NOT_INTERRUPTIBLE = frozenset({Phase.AFTER_TOOL_EXECUTE, Phase.STEP_END})
"""Phases with unsaved results, which an interruption would lose."""


async def call_hooks(run: ActiveRun, phase: Phase, **phase_fields: Any) -> HookRequests:
    """Call the hooks of a phase; most phases can be interrupted meanwhile.

    `phase_fields` are the fields of HookView that only this phase has.
    """
    hooks = run.agent.plugins.hooks(phase)
    if not hooks:
        return NO_REQUESTS
    if phase in _NOT_INTERRUPTIBLE:
        return await _call_all(run, phase, hooks, phase_fields)
    async with run.interruption.interruptible():
        return await _call_all(run, phase, hooks, phase_fields)


class HookedRun(Protocol):
    """A run as its hooks need it: executing, or ended before."""

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
    """Call the `run_end` hooks, also of an interrupted run; they can only change state."""
    hooks = run.agent.plugins.hooks(Phase.RUN_END)
    if hooks:
        await _call_all(run, Phase.RUN_END, hooks, {})


async def _call_all(
    run: HookedRun, phase: Phase, hooks: Sequence[tuple[str, Hook]], phase_fields: dict[str, Any]
) -> HookRequests:
    responses = await _call_hooks(hooks, _view(run, phase, phase_fields))
    accepted: list[Request] = []
    conflicting: list[tuple[str, Hook]] = []
    changed: frozenset[str] = frozenset()
    for hook, requests in zip(hooks, responses, strict=True):
        keys = _batch(requests).exclusive_keys
        if keys & changed:
            conflicting.append(hook)
        else:
            changed |= keys
            accepted += requests
            _set_pause(run, hook, requests)
    _commit(run, phase, accepted)
    for hook in conflicting:
        [requests] = await _call_hooks([hook], _view(run, phase, phase_fields))
        _commit(run, phase, requests)
        accepted += requests
        _set_pause(run, hook, requests)
    return HookRequests(tuple(each for each in accepted if not isinstance(each, Change)))


def _set_pause(run: HookedRun, hook: tuple[str, Hook], requests: Sequence[Request]) -> None:
    """Set the pause that the next commit writes; the first one counts. An ended run can't pause."""
    if not isinstance(run, ActiveRun):
        return
    plugin, _ = hook
    for request in requests:
        if isinstance(request, Pause) and not run.wants_pause:
            run.new_pause = NewPause(PLUGIN_PREFIX + plugin, request.reason)


def _view(run: HookedRun, phase: Phase, phase_fields: dict[str, Any]) -> HookView:
    return HookView(
        phase=phase,
        run=run_info(run.record),
        agent=run.agent.spec,
        deps=run.agent.deps,
        state=run.state.snapshot,
        log=tuple(run.log),
        steps=run.steps,
        usage=run.usage,
        active_seconds=run.active_seconds,
        remembered=run.remembered_rules,
        memory=_memory_of(run),
        **phase_fields,
    )


def _memory_of(run: HookedRun) -> MemoryReader | None:
    policy = run.agent.plugins.memory
    if policy is None or not isinstance(run, ActiveRun) or run.memories is None:
        return None
    return MemoryReader(run.memories, owner_for(policy, run_info(run.record), run.agent.spec.id))


async def _call_hooks(
    hooks: Sequence[tuple[str, Hook]], view: HookView
) -> Sequence[Sequence[Request]]:
    if len(hooks) == 1:
        return [await _call_hook(*hooks[0], view)]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_call_hook(name, hook, view)) for name, hook in hooks]
    except* PluginFailed as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


async def _call_hook(plugin: str, hook: Hook, view: HookView) -> Sequence[Request]:
    try:
        requests = await hook(view)
    except Exception as error:  # a plugin's code
        raise PluginFailed(plugin, view.phase.value, f"{type(error).__name__}: {error}") from error
    for request in requests:
        if not isinstance(request, OFFERED[view.phase]):
            raise PluginFailed(
                plugin, view.phase.value, f"{type(request).__name__} can't be requested there"
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
