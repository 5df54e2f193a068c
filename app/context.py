"""What every command and query works with; built once by the composition root."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct, field

from app.agents.registry import AgentRegistry
from app.backends.registry import Backends
from app.clock import Clock
from app.domain.files.files import DEFAULT_MAX_FILE_BYTES
from app.domain.ids import RunId, Tenant
from app.domain.memories.memories import MemoryLimits
from app.domain.redaction import Redact, unredacted
from app.events.fanout.hub import Hub
from app.events.feeds.tenant_feeds import TenantFeeds
from app.events.transaction import EventTransactions, Publisher
from app.storage.files.chunk_stores import ChunkStore
from app.storage.files.file_bytes import FileBytes
from app.storage.postgres.database import Database

SendCancelHint: TypeAlias = Callable[[Tenant, RunId, str | None], Awaitable[None]]
"""Sends a hint to the run's owner that its cancel was requested."""


class ServiceLimits(Struct, frozen=True, kw_only=True):
    """Bounds on what clients may ask for."""

    queue_per_thread: int = 100
    message_bytes: int = 1_000_000
    file_bytes: int = DEFAULT_MAX_FILE_BYTES
    signal_seconds: float = 86_400.0
    """Seconds that a signal without a ticket is kept."""
    memory: MemoryLimits = MemoryLimits()


class ServiceContext(Struct, frozen=True, kw_only=True):
    database: Database
    events: EventTransactions
    publisher: Publisher
    hub: Hub
    feeds: TenantFeeds
    clock: Clock
    agents: AgentRegistry
    limits: ServiceLimits
    send_cancel_hint: SendCancelHint
    heartbeat_timeout: float
    backends: Backends = field(default_factory=lambda: Backends({}, {}))
    redact: Redact = unredacted
    memory_language: str = "english"
    chunks: ChunkStore | None = None
    """Where the bytes of new files go, if not to the database."""

    @property
    def file_bytes(self) -> FileBytes:
        return FileBytes(self.database.pool, self.chunks)
