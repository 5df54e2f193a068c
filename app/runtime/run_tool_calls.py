"""The calls of one answer, taken as far as they get: one after the other, or side by side.

One after the other, a tool that asks a person stops the calls behind it, and each call is judged right
before it would run: what earlier ones have changed counts. Side by side, all are judged first, those
that run are marked in one commit before any begins, and nothing that becomes of one stops another.

Either way results are told in the order of the calls. A result whose turn hasn't come is kept at once:
it is as durable as one that was told, and whoever goes on after a crash tells it instead of running
the call again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias, assert_never

from app.domain.agents.specs import ToolExecution
from app.domain.runs.limits import Limit
from app.domain.runs.terminations import Blocked
from app.domain.tools.tool_calls import CallState, CallStatus, ToolResult
from app.runtime.limits import limit_question, stopped
from app.runtime.plugins import Phase
from app.runtime.tool_calls.approval_gate import (
    AsChild,
    AsTask,
    CallAnswered,
    CallForbidden,
    CallRefused,
    MustAsk,
    OverLimit,
    Verdict,
    ends_the_run,
    gate_call,
)
from app.runtime.tool_calls.background import begin_task
from app.runtime.tool_calls.batch import INTERRUPTIONS, ToolBatch
from app.runtime.tool_calls.delegate import begin_child_task, open_child_ticket, plan_child
from app.runtime.tool_calls.execute import Executed, execute
from app.runtime.tool_calls.interrupted import AskHuman, Rerun, recovery_for
from app.runtime.tool_calls.state_changes import ParallelChanges, executed_before

Reporter: TypeAlias = Callable[[], Awaitable[object]]
"""What is to be done about a call when its turn comes."""


async def run_tool_calls(batch: ToolBatch, calls: Sequence[CallState]) -> None:
    """Run the calls of an open step. What was done is saved, also when the round is broken off."""
    try:
        if batch.run.agent.spec.tool_execution is ToolExecution.PARALLEL:
            await _side_by_side(batch, calls)
        else:
            await _one_by_one(batch, calls)
    except INTERRUPTIONS:
        await batch.save()
        raise
    if batch.stop is not None:
        batch.withdraw_tickets()


async def apply_verdict(
    batch: ToolBatch, state: CallState, verdict: Verdict, *, resumed: bool = False
) -> None:
    """Give a call that doesn't run what it gets instead."""
    match verdict:
        case CallRefused(result) | CallAnswered(result):
            await batch.finish(state, Executed(result), resumed=resumed)
        case MustAsk(request, kind):
            await batch.open_ticket(state, request, kind)
        case CallForbidden(reason):
            batch.stop = Blocked(reason)
            blocked = Executed(ToolResult.error(state.call.name, reason))
            await batch.finish(state, blocked, resumed=resumed)
        case OverLimit(waits):
            if waits:
                about = batch.limit_ticket or await limit_question(batch.run, Limit.TOOL_CALLS)
                batch.hold(state, about)
                return
            batch.stop = stopped(batch.run, Limit.TOOL_CALLS)
            not_run = ToolResult.error(state.call.name, f"Not run: {batch.stop.detail}")
            await batch.finish(state, Executed(not_run), resumed=resumed)
        case AsTask():
            await batch.call_before_hooks(state)
            begun = Executed(begin_task(batch.run, state))
            await batch.finish(state, begun, resumed=resumed)
        case AsChild(target, in_background):
            await batch.call_before_hooks(state)
            work = await plan_child(batch.run, state, target, in_background=in_background)
            if isinstance(work, str):
                error = Executed(ToolResult.error(state.call.name, work))
                await batch.finish(state, error, resumed=resumed)
            elif in_background:
                begun = Executed(begin_child_task(batch.run, state, work))
                await batch.finish(state, begun, resumed=resumed)
            else:
                batch.run.usage_meter.begin([state.call.id])
                await open_child_ticket(batch, state, work)
        case _:
            assert_never(verdict)


# --- one after the other --------------------------------------------------------------------------


async def _one_by_one(batch: ToolBatch, calls: Sequence[CallState]) -> None:
    for place, state in enumerate(calls):
        if await _stops_the_rest(batch, state):
            await batch.save_before_hooks(Phase.STEP_END)
            for behind in calls[place + 1 :]:
                await _leave(batch, behind)
            return


async def _leave(batch: ToolBatch, state: CallState) -> None:
    """Let go a call whose turn won't come; what it came to before a crash counts."""
    if state.unreported is not None and state.status.is_final:
        await batch.finish(state, executed_before(batch.run, state, state.unreported))
    elif not state.is_answered:
        batch.interrupt(state)


async def _stops_the_rest(batch: ToolBatch, state: CallState) -> bool:
    if state.is_answered:
        return False
    if state.unreported is not None:
        executed = executed_before(batch.run, state, state.unreported)
        return await batch.finish(state, executed) is CallStatus.SUSPENDED
    if state.status is CallStatus.RUNNING:
        match await recovery_for(batch.run, state):
            case Executed() as known:
                return await batch.finish(state, known) is CallStatus.SUSPENDED
            case AskHuman(why):
                await batch.open_outcome_ticket(state, why)
                return False
            case Rerun():
                pass
    else:
        await batch.save_before_hooks(Phase.TOOL_GATE, Phase.BEFORE_TOOL_EXECUTE)
        if (verdict := await gate_call(batch.run, state)) is not None:
            await apply_verdict(batch, state, verdict)
            return ends_the_run(verdict)
        await batch.call_before_hooks(state)
    return await batch.execute(state) is CallStatus.SUSPENDED


# --- side by side ---------------------------------------------------------------------------------


class _InOrder:
    """What is known of each call, told in the order of the calls."""

    def __init__(self, calls: Sequence[CallState]) -> None:
        self._calls = calls
        self._known: dict[int, Reporter] = {}
        self._next = 0

    def add_known(self, place: int, telling: Reporter) -> None:
        self._known[place] = telling

    async def report(self) -> None:
        """Tell as many as it is the turn of."""
        while self._next in self._known:
            place, self._next = self._next, self._next + 1
            await self._known[place]()

    def has_reported(self, place: int) -> bool:
        return place < self._next


async def _side_by_side(batch: ToolBatch, calls: Sequence[CallState]) -> None:
    batch.parallel_changes = ParallelChanges(batch.run, calls)
    turns = _InOrder(calls)
    to_run = await _judged(batch, calls, turns)
    for _, state in to_run:
        if state.status is not CallStatus.RUNNING:
            await batch.call_before_hooks(state)
    await turns.report()
    if to_run:
        await batch.begin(*(state for _, state in to_run))
        await _ParallelCalls(batch, turns, dict(to_run)).run()


async def _judged(
    batch: ToolBatch, calls: Sequence[CallState], turns: _InOrder
) -> list[tuple[int, CallState]]:
    """The calls that run, with their places; what becomes of the others is known."""
    to_run: list[tuple[int, CallState]] = []
    for place, state in enumerate(calls):
        if state.is_answered:
            turns.add_known(place, _nothing)
        elif state.unreported is not None:
            executed = executed_before(batch.run, state, state.unreported)
            turns.add_known(place, partial(batch.finish, state, executed))
        elif state.status is CallStatus.RUNNING:
            match await recovery_for(batch.run, state):
                case Executed() as known:
                    turns.add_known(place, partial(batch.finish, state, known))
                case AskHuman(why):
                    turns.add_known(place, partial(batch.open_outcome_ticket, state, why))
                case Rerun():
                    to_run.append((place, state))
        elif (verdict := await gate_call(batch.run, state)) is None:
            to_run.append((place, state))
        else:
            turns.add_known(place, partial(apply_verdict, batch, state, verdict))
            if ends_the_run(verdict):
                for after, behind in enumerate(calls[place + 1 :], place + 1):
                    turns.add_known(after, partial(_leave, batch, behind))
                break
    return to_run


class _ParallelCalls:
    """Marked calls at work, until the last one has its result or somebody breaks in."""

    def __init__(self, batch: ToolBatch, turns: _InOrder, calls: dict[int, CallState]) -> None:
        self._round = batch
        self._turns = turns
        self._calls = calls
        self._snapshot = batch.run.state.snapshot
        self._over: asyncio.Queue[tuple[int, Executed | Exception]] = asyncio.Queue()
        self._unsaved: dict[int, Executed] = {}

    async def run(self) -> None:
        """One hand commits for all: what has come in meanwhile goes into one commit."""
        broken: Exception | None = None
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._one(*call)) for call in self._calls.items()]
            try:
                await self._collect()
            except Exception as error:  # noqa: BLE001  raised again once no call is left at work
                broken = error
                for task in tasks:
                    task.cancel()
        if broken is not None:
            self._take_what_came()
            self._keep()
            raise broken

    async def _one(self, place: int, state: CallState) -> None:
        try:
            executed = await execute(self._round.run, state, self._snapshot)
        except Exception as error:  # noqa: BLE001  the one who collects has to end the others first
            self._over.put_nowait((place, error))
        else:
            self._over.put_nowait((place, executed))

    async def _collect(self) -> None:
        left = len(self._calls)
        while left:
            async with self._round.run.interruption.interruptible():
                self._take(*await self._over.get())
            self._take_what_came()
            left -= len(self._unsaved)
            if self._round.has_hooks(Phase.AFTER_TOOL_EXECUTE):
                for place, executed in self._unsaved.items():
                    self._round.keep_unreported(self._calls[place], executed)
                await self._round.save()
            await self._turns.report()
            self._keep()
            if left:
                await self._round.save()

    def _take_what_came(self) -> None:
        while not self._over.empty():
            self._take(*self._over.get_nowait())

    def _take(self, place: int, came: Executed | Exception) -> None:
        if isinstance(came, Exception):
            raise came
        self._unsaved[place] = came
        self._turns.add_known(place, partial(self._round.finish, self._calls[place], came))

    def _keep(self) -> None:
        """What has come and isn't told must not be lost."""
        for place, executed in self._unsaved.items():
            if not self._turns.has_reported(place):
                self._round.keep_unreported(self._calls[place], executed)
        self._unsaved.clear()


async def _nothing() -> None: ...
