"""A claimed run: what a worker begins an execution with."""

from msgspec import Struct

from app.domain.claims.stored_progress import StoredProgress
from app.domain.json_values import JsonObject
from app.domain.runs.runs import RunRecord, RunStatus
from app.domain.threads.messages import LoggedMessage


class ClaimedRun(Struct, frozen=True, kw_only=True):
    """A run that this worker owns, under the record's attempt."""

    record: RunRecord
    next_seq: int
    """The number of the next message in the thread's log."""
    previous_state: RunStatus
    log: tuple[LoggedMessage, ...] | None = None
    """The whole message log, if it is known without a query."""
    is_announced: bool = False
    """`run_start` was emitted with the claim."""
    thread_state: JsonObject = {}
    progress: StoredProgress | None = None
    """What the execution has to load, if the claim's statement has read it."""
