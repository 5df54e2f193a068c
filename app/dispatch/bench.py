"""What every execution works with, and the claimed run that it is about."""

from dataclasses import dataclass, field

from app.agents.roster import Roster
from app.backends.registry import Backends
from app.clock import Clock
from app.domain.json_values import JsonObject
from app.domain.messages import LoggedMessage
from app.domain.rate_limits import RateLimitPolicy
from app.domain.redaction import Redact, unredacted
from app.domain.runs import RunRecord, RunStatus
from app.events.writer import Writer
from app.storage.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Workbench:
    """What every execution works with."""

    database: Database
    writer: Writer
    roster: Roster
    clock: Clock
    backends: Backends = field(default_factory=lambda: Backends({}, {}))
    redact: Redact = unredacted
    rate_limits: RateLimitPolicy = RateLimitPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRun:
    """A run that is this worker's, under its attempt. `log` is known when nothing was before it, and
    `run_start` has been said when it is announced."""

    record: RunRecord
    next_seq: int
    was: RunStatus
    log: tuple[LoggedMessage, ...] | None = None
    is_announced: bool = False
    thread_state: JsonObject = field(default_factory=dict)
