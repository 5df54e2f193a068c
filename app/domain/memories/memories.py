"""Memories: values that agents keep across runs, each under a key of its owner."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from app.domain.ids import AgentId, RunId
from app.domain.json_values import Json
from app.domain.runs.run_info import RunInfo

MAX_SUBJECT_CHARACTERS = 200
TENANT_SUBJECT = ""
"""The subject of the memories of a whole tenant."""


class MemoryScope(StrEnum):
    """Whose memories an agent uses."""

    SUBJECT = "subject"
    """Those of the subject that started the run."""
    USER = "user"
    """Those of the user whom the run's `context` names. Only a trusted server can send a `context`."""
    AGENT = "agent"
    """Those of the agent, for all who use it."""
    TENANT = "tenant"
    """Those of the tenant, for all of its agents that have this scope."""


class MemoryOwner(Struct, frozen=True):
    """The owner of memories within a tenant. Keys are unique within an owner."""

    scope: MemoryScope
    subject: str


class MemoryEntry(Struct, frozen=True, kw_only=True):
    """A memory: a key and its value."""

    id: str
    owner: MemoryOwner
    key: str
    value: Json
    size: int
    """Bytes of the key and the value."""
    agent_id: AgentId | None
    """The agent that saved the value; None if a client did."""
    run_id: RunId | None
    saved_by: str
    """The subject that saved the value, or that started the run which did."""
    created_at: datetime
    updated_at: datetime


class MemoryPolicy(Struct, frozen=True, kw_only=True):
    """Whose memories an agent uses."""

    scope: MemoryScope = MemoryScope.SUBJECT
    user_key: str = "user_id"
    """The key of the run's `context` that names the user, for the scope `user`."""


class MemoryLimits(Struct, frozen=True, kw_only=True):
    """How much an owner may keep."""

    value_bytes: int = 4_000
    """Of one memory: its key and value."""
    count: int = 1_000
    total_bytes: int = 1_000_000


class NewMemory(Struct, frozen=True, kw_only=True):
    """A value to keep, and who saves it."""

    key: str
    value: Json
    saved_by: str
    agent_id: AgentId | None = None
    run_id: RunId | None = None


class MemoryFilter(Struct, frozen=True, kw_only=True):
    """Which memories a list has. None doesn't filter."""

    scope: MemoryScope | None = None
    subject: str | None = None
    key: str | None = None
    agent_id: AgentId | None = None
    query: str | None = None


def owner_for(policy: MemoryPolicy, run: RunInfo, agent_id: AgentId) -> MemoryOwner | None:
    """The owner of the memories that an agent uses in a run; None if the run names no user.

    A delegate's run has the `started_by` and the `context` of the run above it, so it has the same owner.
    """
    match policy.scope:
        case MemoryScope.SUBJECT:
            return MemoryOwner(policy.scope, run.started_by)
        case MemoryScope.USER:
            user = run.context.get(policy.user_key)
            is_name = isinstance(user, str) and 0 < len(user) <= MAX_SUBJECT_CHARACTERS
            return MemoryOwner(policy.scope, str(user)) if is_name else None
        case MemoryScope.AGENT:
            return MemoryOwner(policy.scope, agent_id)
        case MemoryScope.TENANT:
            return MemoryOwner(policy.scope, TENANT_SUBJECT)
