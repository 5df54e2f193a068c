"""What every execution of a run works with; built once by the composition root."""

from dataclasses import dataclass, field

from app.agents.registry import AgentRegistry
from app.backends.registry import Backends
from app.clock import Clock
from app.domain.redaction import Redact, unredacted
from app.domain.runs.rate_limits import RateLimitPolicy
from app.events.group_commit import GroupCommit
from app.storage.postgres.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionContext:
    database: Database
    writer: GroupCommit
    agents: AgentRegistry
    clock: Clock
    backends: Backends = field(default_factory=lambda: Backends({}, {}))
    redact: Redact = unredacted
    rate_limits: RateLimitPolicy = RateLimitPolicy()
