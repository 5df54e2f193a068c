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

from app.domain.agents import ToolExecution
from app.domain.limits import Limit
from app.domain.terminations import Blocked
from app.domain.tool_calls import CallState, CallStatus, ToolResult
from app.runtime.background import begin_task
from app.runtime.cut_short import AskPerson, RunAgain, way_out
from app.runtime.delegating import ask_child, begin_child, planned
from app.runtime.limits import question_about, stopped
from app.runtime.plugins import Phase
from app.runtime.tool_changes import SideBySide, executed_before
from app.runtime.tool_execution import Executed, execute
from app.runtime.tool_gate import (
    Answered,
    AsChild,
    AsTask,
    Forbidden,
    MustAsk,
    OverLimit,
    Refused,
    Verdict,
    ends_the_run,
    judge,
)
from app.runtime.tool_round import BROKEN_OFF, ToolRound

Telling: TypeAlias = Callable[[], Awaitable[object]]
"""What is to be done about a call when its turn comes."""


async def run_calls(round_: ToolRound, calls: Sequence[CallState]) -> None:
    """Run the calls of an open step. What was done is saved, also when the round is broken off."""
    try:
        if round_.run.agent.spec.tool_execution is ToolExecution.PARALLEL:
            await _side_by_side(round_, calls)
        else:
            await _one_by_one(round_, calls)
    except BROKEN_OFF:
        await round_.save()
        raise
    if round_.stop is not None:
        round_.withdraw_questions()


async def settle(
    round_: ToolRound, state: CallState, verdict: Verdict, *, resumed: bool = False
) -> None:
    """Give a call that doesn't run what it gets instead."""
    match verdict:
        case Refused(result) | Answered(result):
            await round_.finish(state, Executed(result), resumed=resumed)
        case MustAsk(request, kind):
            await round_.ask(state, request, kind)
        case Forbidden(reason):
            round_.stop = Blocked(reason)
            blocked = Executed(ToolResult.error(state.call.name, reason))
            await round_.finish(state, blocked, resumed=resumed)
        case OverLimit(waits):
            if waits:
                about = round_.about_limit or await question_about(round_.run, Limit.TOOL_CALLS)
                round_.hold(state, about)
                return
            round_.stop = stopped(round_.run, Limit.TOOL_CALLS)
            not_run = ToolResult.error(state.call.name, f"Not run: {round_.stop.detail}")
            await round_.finish(state, Executed(not_run), resumed=resumed)
        case AsTask():
            await round_.announce(state)
            begun = Executed(begin_task(round_.run, state))
            await round_.finish(state, begun, resumed=resumed)
        case AsChild(target, in_background):
            await round_.announce(state)
            work = await planned(round_.run, state, target, in_background=in_background)
            if isinstance(work, str):
                error = Executed(ToolResult.error(state.call.name, work))
                await round_.finish(state, error, resumed=resumed)
            elif in_background:
                begun = Executed(begin_child(round_.run, state, work))
                await round_.finish(state, begun, resumed=resumed)
            else:
                round_.run.budget.begin([state.call.id])
                await ask_child(round_, state, work)
        case _:
            assert_never(verdict)


# --- one after the other --------------------------------------------------------------------------


async def _one_by_one(round_: ToolRound, calls: Sequence[CallState]) -> None:
    for place, state in enumerate(calls):
        if await _stops_the_rest(round_, state):
            await round_.secure(Phase.STEP_END)
            for behind in calls[place + 1 :]:
                await _leave(round_, behind)
            return


async def _leave(round_: ToolRound, state: CallState) -> None:
    """Let go a call whose turn won't come; what it came to before a crash counts."""
    if state.untold is not None and state.status.is_final:
        await round_.finish(state, executed_before(round_.run, state, state.untold))
    elif not state.is_answered:
        round_.interrupt(state)


async def _stops_the_rest(round_: ToolRound, state: CallState) -> bool:
    if state.is_answered:
        return False
    if state.untold is not None:
        executed = executed_before(round_.run, state, state.untold)
        return await round_.finish(state, executed) is CallStatus.SUSPENDED
    if state.status is CallStatus.RUNNING:
        match await way_out(round_.run, state):
            case Executed() as known:
                return await round_.finish(state, known) is CallStatus.SUSPENDED
            case AskPerson(why):
                await round_.ask_for_outcome(state, why)
                return False
            case RunAgain():
                pass
    else:
        await round_.secure(Phase.TOOL_GATE, Phase.BEFORE_TOOL_EXECUTE)
        if (verdict := await judge(round_.run, state)) is not None:
            await settle(round_, state, verdict)
            return ends_the_run(verdict)
        await round_.announce(state)
    return await round_.execute(state) is CallStatus.SUSPENDED


# --- side by side ---------------------------------------------------------------------------------


class _Turns:
    """What is known of each call, told in the order of the calls."""

    def __init__(self, calls: Sequence[CallState]) -> None:
        self._calls = calls
        self._known: dict[int, Telling] = {}
        self._next = 0

    def know(self, place: int, telling: Telling) -> None:
        self._known[place] = telling

    async def tell(self) -> None:
        """Tell as many as it is the turn of."""
        while self._next in self._known:
            place, self._next = self._next, self._next + 1
            await self._known[place]()

    def has_told(self, place: int) -> bool:
        return place < self._next


async def _side_by_side(round_: ToolRound, calls: Sequence[CallState]) -> None:
    round_.side_by_side = SideBySide(round_.run, calls)
    turns = _Turns(calls)
    to_run = await _judged(round_, calls, turns)
    for _, state in to_run:
        if state.status is not CallStatus.RUNNING:
            await round_.announce(state)
    await turns.tell()
    if to_run:
        await round_.begin(*(state for _, state in to_run))
        await _Race(round_, turns, dict(to_run)).run()


async def _judged(
    round_: ToolRound, calls: Sequence[CallState], turns: _Turns
) -> list[tuple[int, CallState]]:
    """The calls that run, with their places; what becomes of the others is known."""
    to_run: list[tuple[int, CallState]] = []
    for place, state in enumerate(calls):
        if state.is_answered:
            turns.know(place, _nothing)
        elif state.untold is not None:
            executed = executed_before(round_.run, state, state.untold)
            turns.know(place, partial(round_.finish, state, executed))
        elif state.status is CallStatus.RUNNING:
            match await way_out(round_.run, state):
                case Executed() as known:
                    turns.know(place, partial(round_.finish, state, known))
                case AskPerson(why):
                    turns.know(place, partial(round_.ask_for_outcome, state, why))
                case RunAgain():
                    to_run.append((place, state))
        elif (verdict := await judge(round_.run, state)) is None:
            to_run.append((place, state))
        else:
            turns.know(place, partial(settle, round_, state, verdict))
            if ends_the_run(verdict):
                for after, behind in enumerate(calls[place + 1 :], place + 1):
                    turns.know(after, partial(_leave, round_, behind))
                break
    return to_run


class _Race:
    """Marked calls at work, until the last one has its result or somebody breaks in."""

    def __init__(self, round_: ToolRound, turns: _Turns, calls: dict[int, CallState]) -> None:
        self._round = round_
        self._turns = turns
        self._calls = calls
        self._snapshot = round_.run.state.snapshot
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
            if self._round.will_ask(Phase.AFTER_TOOL_EXECUTE):
                for place, executed in self._unsaved.items():
                    self._round.keep(self._calls[place], executed)
                await self._round.save()
            await self._turns.tell()
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
        self._turns.know(place, partial(self._round.finish, self._calls[place], came))

    def _keep(self) -> None:
        """What has come and isn't told must not be lost."""
        for place, executed in self._unsaved.items():
            if not self._turns.has_told(place):
                self._round.keep(self._calls[place], executed)
        self._unsaved.clear()


async def _nothing() -> None: ...
