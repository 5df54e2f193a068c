"""Limits of an executing run: when they are checked, and what happens when one is reached.

    stop   the run ends; when its time is up, the current work is interrupted
    ask    the run suspends with a ticket; when its time is up, the current work may continue for as long
           again as the limit, and at most MAX_GRACE_SECONDS

Steps, tokens and cost are checked before each step, tool calls before each call, and time by a timer. A run
whose last answer needs no further step finishes, even beyond a limit.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from app.clock import new_id
from app.domain.events.step_events import StepEnd, StreamReset
from app.domain.events.ticket_events import TicketOpened
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
from app.domain.tickets.ticket_json import ticket_to_json
from app.domain.tickets.tickets import Ticket, TicketKind, TicketStatus
from app.runtime.active_run import ActiveRun
from app.runtime.endings import Ending, Suspended, close_open_calls, fail, finish, save_suspension

MAX_GRACE_SECONDS = 30.0

_CHECKED_BEFORE_STEP = (Limit.STEPS, Limit.TOKENS, Limit.WALL_SECONDS, Limit.COST_USD)


async def check_limits(run: ActiveRun) -> Ending | None:
    """Check the limits before a step; None if it may begin."""
    limits = run.usage_meter.limits
    if limits.of(Limit.COST_USD) is not None and run.billing.unpriced_requests:
        # A plugin chose the model. A start is refused if the agent's own models have no price.
        return await fail(
            run,
            "price_unknown",
            "a model of the run has no price, and the run has a limit of its cost",
        )
    used = run.used
    for limit in _CHECKED_BEFORE_STEP:
        allowed = limits.of(limit)
        if allowed is not None and used.of(limit) >= allowed:
            return await at_the_limit(run, limit)
    return None


async def at_the_limit(run: ActiveRun, limit: Limit) -> Ending:
    """End the run, or suspend it with a limit ticket, at any point of its execution."""
    if run.usage_meter.limits.on_limit is OnLimit.STOP:
        return await finish(run, stopped(run, limit), close_open_calls(run))
    return await _suspend_at_limit(run, [await new_limit_ticket(run, limit)])


def stopped(run: ActiveRun, limit: Limit, why: str = "") -> Stopped:
    allowed = run.usage_meter.limits.of(limit)
    assert allowed is not None, "only a limit that the run has can be reached"
    return exhausted(limit, run.used.of(limit), allowed, why)


async def new_limit_ticket(run: ActiveRun, limit: Limit) -> Ticket:
    """The ticket that asks whether the run may use more; its agent sets approvers and expiry."""
    policy = policy_of_request(run.record.request)
    return limit_ticket(
        run.record,
        limit,
        run.usage_meter.limits,
        run.used,
        id=TicketKey(new_id()),
        agent_id=run.agent.spec.id,
        step_index=run.step_index,
        used_names=await run.answers.names_used(),
        terms=run.agent.spec.ticket_terms(LIMIT_TOOL_NAME, policy),
        at=run.clock.now(),
    )


async def apply_raises(run: ActiveRun) -> Ending | None:
    """At the start of an activation: apply granted raises, suspend again, or end.

    One commit stores the raised limit and marks its ticket as applied.
    """
    tickets = [ticket for ticket in run.tickets if ticket.kind is TicketKind.LIMIT]
    if any(ticket.status is TicketStatus.OPEN for ticket in tickets):
        return await _suspend_at_limit(run, [])
    for ticket in tickets:
        amount = raise_granted(ticket)
        if amount is None:
            last = close_open_calls(run)
            last.applied.append(ticket.id)
            return await finish(
                run, stopped(run, limit_of(ticket), reason_not_raised(ticket)), last
            )
        run.usage_meter.raise_limit(limit_of(ticket), amount)
    if tickets:
        await run.save(applied=[ticket.id for ticket in tickets])
    return None


async def _suspend_at_limit(run: ActiveRun, opened: Sequence[Ticket]) -> Suspended:
    """Suspend the run, also within a step.

    An incomplete step begins again after the resume, under the same number. It keeps its calls if its
    answer is in the log.
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
        events=[TicketOpened(ticket_to_json(ticket)) for ticket in opened],
    )
    return Suspended()


def wall_clock_limit(run: ActiveRun) -> AbstractContextManager[None]:
    """Interrupt the block when the run's wall time is used up."""
    allowed = run.usage_meter.limits.of(Limit.WALL_SECONDS)
    return nullcontext() if allowed is None else _interrupted_after(run, allowed)


@contextmanager
def _interrupted_after(run: ActiveRun, allowed: float) -> Iterator[None]:
    left = max(0.0, allowed - run.active_seconds)
    asks = run.usage_meter.limits.on_limit is OnLimit.ASK
    limit_asked = run.usage_meter.limits.requested.get(Limit.WALL_SECONDS, allowed)

    def time_is_up() -> None:
        run.interruption.out_of_time(now=not asks)

    def grace_is_over() -> None:
        run.interruption.out_of_time(now=True)

    loop = asyncio.get_running_loop()
    timers = [
        loop.call_later(left, time_is_up),
        loop.call_later(left + min(MAX_GRACE_SECONDS, limit_asked), grace_is_over),
    ]
    if not left:
        time_is_up()
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
