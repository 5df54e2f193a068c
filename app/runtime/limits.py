"""Limits at work: where a run looks whether it may use more, and what happens when it may not.

    stop   the run ends; what is under way when its time is up is broken off
    ask    the run rests with a question to a person; what is under way when its time is up may come to
           its end, for as long again as the limit is, and at most GRACE seconds

Steps and tokens are asked for before another step, tool calls before each call, time by a clock of its
own. A run that has nothing more to do has ended by itself, whatever it has used.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from app.clock import new_id
from app.domain.events.command_events import TicketOpened
from app.domain.events.run_events import StepEnd, StreamReset
from app.domain.ids import TicketKey
from app.domain.runs.limits import Limit, OnLimit, exhausted
from app.domain.runs.runs import LIMIT_REACHED
from app.domain.runs.terminations import Stopped
from app.domain.tickets.limit_tickets import (
    LIMIT_TOOL_NAME,
    limit_of,
    limit_ticket,
    raise_granted,
    reason_not_raised,
)
from app.domain.tickets.terms import policy_of_request
from app.domain.tickets.tickets import Ticket, TicketKind, TicketStatus, ticket_to_json
from app.runtime.active_run import ActiveRun
from app.runtime.endings import Ending, Suspended, close_open_calls, finish, save_suspension

GRACE_SECONDS = 30.0

_BEFORE_A_STEP = (Limit.STEPS, Limit.TOKENS, Limit.WALL_SECONDS)


async def check_limits(run: ActiveRun) -> Ending | None:
    """Before another step: None when the run may go on."""
    used = run.used
    for limit in _BEFORE_A_STEP:
        allowed = run.usage_meter.limits.of(limit)
        if allowed is not None and used.of(limit) >= allowed:
            return await at_the_limit(run, limit)
    return None


async def at_the_limit(run: ActiveRun, limit: Limit) -> Ending:
    """End the run, or let it rest with a question, wherever it stands and whatever is under way."""
    if run.usage_meter.limits.on_limit is OnLimit.STOP:
        return await finish(run, stopped(run, limit), close_open_calls(run))
    return await _rest(run, [await limit_question(run, limit)])


def stopped(run: ActiveRun, limit: Limit, why: str = "") -> Stopped:
    return exhausted(limit, run.used.of(limit), run.usage_meter.limits.of(limit) or 0, why)


async def limit_question(run: ActiveRun, limit: Limit) -> Ticket:
    """Whether the run may use more. Who may answer, and until when, is for its agent to say."""
    policy = policy_of_request(run.record.request)
    return limit_ticket(
        run.record,
        limit,
        run.usage_meter.limits,
        run.used,
        key=TicketKey(new_id()),
        agent_id=run.agent.spec.id,
        step_index=run.step_index,
        taken=await run.answers.names_used(),
        terms=run.agent.spec.ticket_terms(LIMIT_TOOL_NAME, policy),
        at=run.clock.now(),
    )


async def apply_raises(run: ActiveRun) -> Ending | None:
    """First thing of every activation: go on with what was granted, rest again, or end.

    A raise is durable in the same commit that makes its answer a used one.
    """
    asked = [ticket for ticket in run.tickets if ticket.kind is TicketKind.LIMIT]
    if any(ticket.status is TicketStatus.OPEN for ticket in asked):
        return await _rest(run, [])
    for ticket in asked:
        by = raise_granted(ticket)
        if by is None:
            last = close_open_calls(run)
            last.applied.append(ticket.id)
            return await finish(
                run, stopped(run, limit_of(ticket), reason_not_raised(ticket)), last
            )
        run.usage_meter.raise_limit(limit_of(ticket), by)
    if asked:
        await run.save(applied=[ticket.id for ticket in asked])
    return None


async def _rest(run: ActiveRun, opened: Sequence[Ticket]) -> Suspended:
    """Come to rest in the middle of whatever was under way.

    A step that isn't complete is begun again, under the same number: with its calls, if they are known.
    """
    if run.in_step:
        if not any(state.step_index == run.steps for state in run.open_calls.values()):
            run.emit(StreamReset(LIMIT_REACHED))
        run.emit(StepEnd())
        run.in_step = False
    await save_suspension(
        run,
        LIMIT_REACHED,
        [ticket for ticket in run.tickets if ticket.status is TicketStatus.OPEN],
        opened,
        said=[TicketOpened(ticket_to_json(ticket)) for ticket in opened],
    )
    return Suspended()


@contextmanager
def wall_clock_limit(run: ActiveRun) -> Iterator[None]:
    """See to it that a run whose time is up hears of that, whatever it is doing."""
    allowed = run.usage_meter.limits.of(Limit.WALL_SECONDS)
    if allowed is None:
        yield
        return
    left = max(0.0, allowed - run.active_seconds)
    asks = run.usage_meter.limits.on_limit is OnLimit.ASK
    own_size = run.usage_meter.limits.asked.get(Limit.WALL_SECONDS, allowed)

    def up() -> None:
        run.interruption.out_of_time(now=not asks)

    def over() -> None:
        run.interruption.out_of_time(now=True)

    loop = asyncio.get_running_loop()
    timers = [loop.call_later(left, up), loop.call_later(left + min(GRACE_SECONDS, own_size), over)]
    if not left:
        up()
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
