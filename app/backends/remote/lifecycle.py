"""The loop of a run whose agent is remote. It gives the same guarantees as the loop of a local run.

    start or continue ─► [ turn ─► its message ]* ─► finish | suspend | hand over

A turn is a step. The remote's text streams as it comes. Its question becomes a ticket here, and the answer
starts its next turn. After a crash the next worker joins the turn that the remote has accepted. A run also
joins it when it is resumed because its question was answered at the remote.
"""

from typing import assert_never

from app.backends.base import Backend
from app.backends.remote.endings import (
    fail_remote,
    finish_remote,
    suspend_on_open_tickets,
    void_withdrawn_tickets,
)
from app.backends.remote.run import RemoteRun
from app.backends.remote.status import tickets_decided_remotely
from app.backends.remote.turn import run_turn
from app.domain.errors import OwnershipLost
from app.domain.events.run_events import RunStart
from app.domain.events.step_events import StreamReset
from app.domain.runs.identity import run_identity
from app.domain.runs.terminations import Cancelled
from app.domain.tickets.tickets import Ticket, TicketStatus
from app.runtime.cancellation import Interrupted, InterruptReason
from app.runtime.endings import Ending, HandedOver, RunFinished, Suspended


async def advance_remote(run: RemoteRun, backend: Backend) -> Ending:
    """Execute a claimed run until it is done, suspended or handed over."""
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
                assert_never(interrupted.reason)


async def _advance(run: RemoteRun, backend: Backend) -> Ending:
    _begin(run)
    run.interruption.check()
    while True:
        answered = [ticket for ticket in run.tickets if ticket.status is not TicketStatus.OPEN]
        joins_turn = not answered and bool(run.tickets)
        if joins_turn:
            withdrawn = await _decided_remotely(run, backend)
            if withdrawn is None and await suspend_on_open_tickets(run, run.tickets):
                return Suspended()
            if withdrawn is None or not await void_withdrawn_tickets(run, withdrawn):
                run.tickets = list(await run.answers.unapplied())
                continue
        if run.unread_inputs and not joins_turn:
            await run.read_inbox()
        run.interruption.check()
        ending = await run_turn(run, backend, answered, joins_turn=joins_turn)
        if ending is not None:
            return ending


async def _decided_remotely(run: RemoteRun, backend: Backend) -> list[Ticket] | None:
    async with run.interruption.interruptible():
        return await tickets_decided_remotely(backend, run.record.id, run.binding, run.tickets)


def _begin(run: RemoteRun) -> None:
    """Begin a new activation, or continue the old one and void the text of its unfinished step."""
    if not run.start.continues:
        run.emit(RunStart(run_identity(run.record), run.record.lineage.parent_run_id))
        return
    run.in_step = run.start.step_begun
    if run.in_step:
        run.emit(StreamReset("takeover"))


async def cancel_claimed_remote(run: RemoteRun) -> RunFinished:
    """End a claimed run that was cancelled and whose agent this process doesn't have."""
    _begin(run)
    return await finish_remote(run, Cancelled(run.interruption.reason))


async def fail_claimed_remote(run: RemoteRun, code: str, detail: str) -> RunFinished:
    """End a claimed run as failed, without executing it."""
    _begin(run)
    return await fail_remote(run, code, detail)
