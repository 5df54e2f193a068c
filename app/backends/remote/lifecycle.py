"""The life of a run whose agent is remote: turns there, and the same promises as for a local run.

    start or continue ─► [ turn ─► its message ]* ─► finish | suspend | hand over

A turn is a step. The remote's text streams as it comes; what it waits for is a ticket here, and the
answer is its next turn. A crash joins the turn that the remote has accepted, and begins no other. So does
a run that is woken because the remote doesn't wait for the same any more: somebody has answered there.
"""

from typing import assert_never

from app.backends.base import Backend
from app.backends.remote.endings import (
    finish_remote,
    suspend_on_open_tickets,
    void_withdrawn_tickets,
)
from app.backends.remote.run import RemoteRun
from app.backends.remote.status import tickets_decided_remotely
from app.backends.remote.turn import run_turn
from app.domain.errors import OwnershipLost
from app.domain.events.run_events import RunStart, StreamReset
from app.domain.runs.identity import run_identity
from app.domain.runs.terminations import Cancelled, Failed
from app.domain.tickets.tickets import Ticket, TicketStatus
from app.runtime.cancellation import Interrupted, InterruptReason
from app.runtime.endings import Ending, HandedOver, RunFinished, Suspended


async def advance_remote(run: RemoteRun, backend: Backend) -> Ending:
    """Execute a claimed run until it is done, must wait, or is wanted elsewhere."""
    try:
        return await _advance(run, backend)
    except Interrupted as interrupted:
        match interrupted.reason:
            case InterruptReason.CANCEL:
                return await finish_remote(run, Cancelled(run.interruption.reason))
            case InterruptReason.HAND_OVER:
                return HandedOver()
            case InterruptReason.ABANDON:
                raise OwnershipLost(run.record.id) from None
            case InterruptReason.OUT_OF_TIME:
                raise AssertionError("a run that is executed elsewhere has no limits") from None
            case _:
                assert_never(interrupted.wish)


async def _advance(run: RemoteRun, backend: Backend) -> Ending:
    _begin(run)
    run.interruption.check()
    while True:
        answered = [ticket for ticket in run.tickets if ticket.status is not TicketStatus.OPEN]
        goes_on_there = not answered and bool(run.tickets)
        if goes_on_there:
            settled = await _settled_elsewhere(run, backend)
            if settled is None and await suspend_on_open_tickets(run, run.tickets):
                return Suspended()
            if settled is None or not await void_withdrawn_tickets(run, settled):
                run.tickets = list(await run.answers.unapplied())
                continue
        if run.unread_inputs and not goes_on_there:
            await run.read_inbox()
        run.interruption.check()
        ending = await run_turn(run, backend, answered, goes_on_there=goes_on_there)
        if ending is not None:
            return ending


async def _settled_elsewhere(run: RemoteRun, backend: Backend) -> list[Ticket] | None:
    async with run.interruption.interruptible():
        return await tickets_decided_remotely(backend, run.record.id, run.binding, run.tickets)


def _begin(run: RemoteRun) -> None:
    """Open a new activation, or void what a lost worker left half said and go on in the old one."""
    if not run.start.continues:
        run.emit(RunStart(run_identity(run.record), run.record.lineage.parent_run_id))
        return
    run.in_step = run.start.step_begun
    if run.in_step:
        run.emit(StreamReset("takeover"))


async def call_off_remote(run: RemoteRun) -> RunFinished:
    """End a claimed run because it was cancelled, although its agent isn't here."""
    _begin(run)
    return await finish_remote(run, Cancelled(run.interruption.reason))


async def fail_claimed_remote(run: RemoteRun, code: str, detail: str) -> RunFinished:
    """End a claimed run without another try."""
    _begin(run)
    return await finish_remote(run, Failed(code, detail))
