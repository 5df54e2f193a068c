"""Writes the checkpoints of many runs with one statement. Nearly all checkpoints are written here."""

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

from msgspec import Struct

from app.domain.checkpoints import Checkpoint
from app.domain.runs.runs import Done, Running, Waiting, WaitingReason
from app.domain.runs.terminations import NaturalEnd
from app.domain.tickets.tickets import ANSWERED_BY_PROGRAMS
from app.storage.checkpoints.statement import checkpoint_query
from app.storage.events.event_log import EventEntry
from app.storage.postgres.database import RawPool


class CheckpointWritten(Struct, frozen=True):
    """A checkpoint that was written, with the counters of its run's row."""

    first_seq: int
    unread_inputs: int = 0
    open_tasks: int = 0
    is_paused: bool = False
    """The run's row has a pause request."""


async def checkpoint(
    pool: RawPool, writes: Sequence[tuple[Checkpoint, Sequence[EventEntry]]], at: datetime
) -> dict[int, CheckpointWritten]:
    """Commit checkpoints of runs that execute, that wait for people, or whose end admits no queued run.

    Returns a result for each index that was written. Of a missing index nothing was written: another
    worker owns the run, it may not end yet, or `checkpoints/single` has to write it.
    """
    rows = await pool.fetch(*checkpoint_query(writes, at))
    return {
        row["i"] - 1: CheckpointWritten(
            row["first_seq"], row["unread_inputs"], row["open_tasks"], row["is_paused"]
        )
        for row in rows
    }


def is_batchable(checkpoint: Checkpoint) -> bool:
    """Whether one statement can write it: it waits only for people, and ends at most naturally."""
    if checkpoint.opened and not isinstance(checkpoint.state, Waiting):
        return False
    if checkpoint.void or checkpoint.tasks:
        return False
    if any(ticket.kind in ANSWERED_BY_PROGRAMS for ticket in checkpoint.opened):
        return False
    if checkpoint.notifies_remote or checkpoint.owes_run_end:
        return False
    if checkpoint.pause is not None:
        return False
    if checkpoint.inferred_input is not None:
        return False
    match checkpoint.state:
        case Running():
            return True
        case Waiting(reason, _, until):
            # A child, a signal or a time resumes the others, which needs more rows.
            asks_person = reason in (WaitingReason.TOOL_PERMISSION, WaitingReason.USER_INPUT)
            return asks_person and until is None and checkpoint.parent_run_id is None
        case Done(termination):
            return isinstance(termination, NaturalEnd) and checkpoint.parent_run_id is None
        case _:
            assert_never(checkpoint.state)
