"""Interrupt: the run that occupies a thread makes way for one that was just put in line.

The newcomer stands in line before the wish is written, so that the end of a run at rest, which is in the
same commit, admits whoever is next.
"""

from dataclasses import dataclass

from app.control.cancel import wish
from app.control.desk import Desk
from app.domain.ids import RunId
from app.domain.principals import Principal
from app.domain.runs import RunStatus
from app.domain.threads import Thread
from app.events.outgoing import Transaction
from app.storage import runs


@dataclass(frozen=True, slots=True)
class Interruption:
    """A run that was wished away while somebody executes it, who should hear of that."""

    run_id: RunId
    reason: str | None


async def interrupt(
    transaction: Transaction, principal: Principal, thread: Thread, newcomer: RunId
) -> Interruption | None:
    """Wish for the end of the run that occupies a thread, which the caller has locked."""
    if thread.open_run_id is None:
        return None
    record = await runs.lock(transaction.connection, principal.tenant, thread.open_run_id)
    if record is None or record.is_done:
        return None
    reason = f"Run {newcomer} was started in its place."
    first_reason = await wish(transaction, principal, thread, record, reason)
    if record.status is not RunStatus.RUNNING:
        return None
    return Interruption(record.id, first_reason)


async def announce(desk: Desk, principal: Principal, interruption: Interruption | None) -> None:
    """The fast path of a wish that is committed."""
    if interruption is not None:
        await desk.announce_cancel(principal.tenant, interruption.run_id, interruption.reason)
