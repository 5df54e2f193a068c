"""Runs the calls of one answer, sequentially or in parallel.

Sequentially, each call passes the gate right before it runs, so it sees the changes of earlier calls. A
call that suspends stops the calls behind it. In parallel, all calls pass the gate first. One commit marks
those that run before any of them begins, and no call stops another.

Either way results are reported in the order of the calls. A result that isn't reported yet is saved at
once. After a crash it is reported, and its call isn't run again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias, assert_never

from app.domain.agents.specs import ToolExecution
from app.domain.runs.limits import Limit
from app.domain.runs.terminations import Blocked
from app.domain.tools.tool_calls import CallState, CallStatus, ToolResult
from app.runtime.limits import new_limit_ticket, stopped
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
"""Reports the result of a call when its turn comes."""


async def run_tool_calls(batch: ToolBatch, calls: Sequence[CallState]) -> None:
    """Run the calls of an open step; save their results also when an interruption breaks in."""
    try:
        if batch.run.agent.spec.tool_execution is ToolExecution.PARALLEL:
            await _run_in_parallel(batch, calls)
        else:
            await _run_sequentially(batch, calls)
    except INTERRUPTIONS:
        await batch.save()
        raise
    if batch.stop is not None:
        batch.withdraw_tickets()


async def apply_verdict(
    batch: ToolBatch, state: CallState, verdict: Verdict, *, resumed: bool = False
) -> None:
    """Give a call that doesn't run here its result, ticket or background task."""
    match verdict:
        case CallRefused(result, changes) | CallAnswered(result, changes):
            await batch.finish(state, Executed(result, changes), resumed=resumed)
        case MustAsk(request, kind):
            await batch.open_ticket(state, request, kind)
        case CallForbidden(reason):
            batch.stop = Blocked(reason)
            blocked = Executed(ToolResult.error(state.call.name, reason))
            await batch.finish(state, blocked, resumed=resumed)
        case OverLimit(waits):
            if waits:
                ticket = batch.limit_ticket or await new_limit_ticket(batch.run, Limit.TOOL_CALLS)
                batch.hold_for_limit(state, ticket)
                return
            batch.stop = stopped(batch.run, Limit.TOOL_CALLS)
            not_run = ToolResult.error(state.call.name, f"Not run: {batch.stop.detail}")
            await batch.finish(state, Executed(not_run), resumed=resumed)
        case AsTask():
            await batch.call_before_hooks(state)
            started = Executed(begin_task(batch.run, state))
            await batch.finish(state, started, resumed=resumed)
        case AsChild(target, in_background):
            await batch.call_before_hooks(state)
            work = await plan_child(batch.run, state, target, in_background=in_background)
            if isinstance(work, str):
                error = Executed(ToolResult.error(state.call.name, work))
                await batch.finish(state, error, resumed=resumed)
            elif in_background:
                started = Executed(begin_child_task(batch.run, state, work))
                await batch.finish(state, started, resumed=resumed)
            else:
                batch.run.usage_meter.begin([state.call.id])
                await open_child_ticket(batch, state, work)
        case _:
            assert_never(verdict)


# --- sequentially ---------------------------------------------------------------------------------


async def _run_sequentially(batch: ToolBatch, calls: Sequence[CallState]) -> None:
    for position, state in enumerate(calls):
        if await _run_and_stop(batch, state):
            await batch.save_before_hooks(Phase.STEP_END)
            for behind in calls[position + 1 :]:
                await _skip(batch, behind)
            return


async def _skip(batch: ToolBatch, state: CallState) -> None:
    """Report a call that won't run as interrupted, or with the outcome that it had before a crash."""
    if state.unreported_result is not None:
        await batch.finish(state, executed_before(batch.run, state, state.unreported_result))
    elif not state.is_answered:
        batch.interrupt(state)


async def _run_and_stop(batch: ToolBatch, state: CallState) -> bool:
    """Run one call; True if the calls behind it must not run."""
    if state.is_answered:
        return False
    if state.unreported_result is not None:
        executed = executed_before(batch.run, state, state.unreported_result)
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


# --- in parallel ----------------------------------------------------------------------------------


class _InOrder:
    """Reports results in the order of the calls, as soon as they are known."""

    def __init__(self, calls: Sequence[CallState]) -> None:
        self._calls = calls
        self._reporters: dict[int, Reporter] = {}
        self._next = 0

    def add(self, position: int, reporter: Reporter) -> None:
        self._reporters[position] = reporter

    async def report(self) -> None:
        """Report the results up to the first one that isn't known yet."""
        while self._next in self._reporters:
            position, self._next = self._next, self._next + 1
            await self._reporters[position]()

    def has_reported(self, position: int) -> bool:
        return position < self._next


async def _run_in_parallel(batch: ToolBatch, calls: Sequence[CallState]) -> None:
    batch.parallel_changes = ParallelChanges(batch.run, calls)
    reports = _InOrder(calls)
    to_run = await _pass_gate(batch, calls, reports)
    for _, state in to_run:
        if state.status is not CallStatus.RUNNING:
            await batch.call_before_hooks(state)
    await reports.report()
    if to_run:
        await batch.begin(*(state for _, state in to_run))
        await _ParallelCalls(batch, reports, dict(to_run)).run()


async def _pass_gate(
    batch: ToolBatch, calls: Sequence[CallState], reports: _InOrder
) -> list[tuple[int, CallState]]:
    """The calls that may run, with their positions; the others get a reporter."""
    to_run: list[tuple[int, CallState]] = []
    for position, state in enumerate(calls):
        if state.is_answered:
            reports.add(position, _report_nothing)
        elif state.unreported_result is not None:
            executed = executed_before(batch.run, state, state.unreported_result)
            reports.add(position, partial(batch.finish, state, executed))
        elif state.status is CallStatus.RUNNING:
            match await recovery_for(batch.run, state):
                case Executed() as known:
                    reports.add(position, partial(batch.finish, state, known))
                case AskHuman(why):
                    reports.add(position, partial(batch.open_outcome_ticket, state, why))
                case Rerun():
                    to_run.append((position, state))
        elif (verdict := await gate_call(batch.run, state)) is None:
            to_run.append((position, state))
        else:
            reports.add(position, partial(apply_verdict, batch, state, verdict))
            if ends_the_run(verdict):
                for after, behind in enumerate(calls[position + 1 :], position + 1):
                    reports.add(after, partial(_skip, batch, behind))
                break
    return to_run


class _ParallelCalls:
    """Calls that run at the same time, until all have results or the run is interrupted."""

    def __init__(self, batch: ToolBatch, reports: _InOrder, calls: dict[int, CallState]) -> None:
        self._batch = batch
        self._reports = reports
        self._calls = calls
        self._snapshot = batch.run.state.snapshot
        self._results: asyncio.Queue[tuple[int, Executed | Exception]] = asyncio.Queue()
        self._unsaved: dict[int, Executed] = {}

    async def run(self) -> None:
        """Run the calls; only this task commits, so one commit has all results that came meanwhile."""
        failure: Exception | None = None
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._execute(*call)) for call in self._calls.items()]
            try:
                await self._collect()
            except Exception as error:  # noqa: BLE001  raised again once no call runs
                failure = error
                for task in tasks:
                    task.cancel()
        if failure is not None:
            self._take_available()
            self._keep_unreported()
            raise failure

    async def _execute(self, position: int, state: CallState) -> None:
        try:
            executed = await execute(self._batch.run, state, self._snapshot)
        except Exception as error:  # noqa: BLE001  `run` has to cancel the other calls first
            self._results.put_nowait((position, error))
        else:
            self._results.put_nowait((position, executed))

    async def _collect(self) -> None:
        missing = len(self._calls)
        while missing:
            async with self._batch.run.interruption.interruptible():
                self._take(*await self._results.get())
            self._take_available()
            missing -= len(self._unsaved)
            if self._batch.has_hooks(Phase.AFTER_TOOL_EXECUTE):
                for position, executed in self._unsaved.items():
                    self._batch.keep_unreported(self._calls[position], executed)
                await self._batch.save()
            await self._reports.report()
            self._keep_unreported()
            if missing:
                await self._batch.save()

    def _take_available(self) -> None:
        while not self._results.empty():
            self._take(*self._results.get_nowait())

    def _take(self, position: int, result: Executed | Exception) -> None:
        if isinstance(result, Exception):
            raise result
        self._unsaved[position] = result
        self._reports.add(position, partial(self._batch.finish, self._calls[position], result))

    def _keep_unreported(self) -> None:
        """Keep the results whose turn hasn't come, for the next commit."""
        for position, executed in self._unsaved.items():
            if not self._reports.has_reported(position):
                self._batch.keep_unreported(self._calls[position], executed)
        self._unsaved.clear()


async def _report_nothing() -> None: ...
