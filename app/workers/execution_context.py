"""What every execution works with, and the claimed run that it is about."""

from dataclasses import dataclass, field

from app.agents.registry import AgentRegistry
from app.backends.registry import Backends
from app.clock import Clock
from app.domain.json_values import JsonObject
from app.domain.redaction import Redact, unredacted
from app.domain.runs.rate_limits import RateLimitPolicy
from app.domain.runs.runs import RunRecord, RunStatus
from app.domain.threads.messages import LoggedMessage
from app.events.group_commit import GroupCommit
from app.storage.postgres.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionContext:
    """What every execution works with."""

    database: Database
    writer: GroupCommit
    agents: AgentRegistry
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
    previous_state: RunStatus
    log: tuple[LoggedMessage, ...] | None = None
    is_announced: bool = False
    thread_state: JsonObject = field(default_factory=dict)
