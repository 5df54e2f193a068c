"""Interrupt: the run that occupies a thread makes way for one that was just put in line.

The newcomer stands in line before the wish is written, so that the end of a run at rest, which is in the
same commit, admits whoever is next.
"""

from app.control.cancel import Interruption, wish
from app.domain.ids import RunId
from app.domain.principals import Principal
from app.domain.threads import Thread
from app.events.outgoing import Transaction
from app.storage import runs


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
    return await wish(transaction, principal, thread, record, reason)
