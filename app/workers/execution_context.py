"""What every execution of a run works with; built once by the composition root."""

from msgspec import Struct, field

from app.agents.registry import AgentRegistry
from app.backends.registry import Backends
from app.clock import Clock
from app.commands.memories.kept_memory import DEFAULT_RULES, MemoryRules
from app.domain.files.files import DEFAULT_MAX_FILE_BYTES, DEFAULT_MAX_INLINE_BYTES
from app.domain.inference.options import MAX_ANSWER_BYTES
from app.domain.redaction import Redact, unredacted
from app.domain.runs.rate_limits import RateLimitPolicy
from app.events.group_commit import GroupCommit
from app.storage.files.chunk_stores import ChunkStore
from app.storage.postgres.database import Database
from app.tools.mcp.servers import NO_SERVERS, McpServers
from app.workers.files.run_files import FileCache
from app.workers.history_cache import HistoryCache


class ExecutionContext(Struct, frozen=True, kw_only=True):
    database: Database
    writer: GroupCommit
    agents: AgentRegistry
    clock: Clock
    backends: Backends = field(default_factory=lambda: Backends({}, {}))
    redact: Redact = unredacted
    rate_limits: RateLimitPolicy = RateLimitPolicy()
    max_answer_bytes: int = MAX_ANSWER_BYTES
    mcp: McpServers = NO_SERVERS
    histories: HistoryCache = field(default_factory=HistoryCache)
    files: FileCache = field(default_factory=FileCache)
    max_inline_bytes: int = DEFAULT_MAX_INLINE_BYTES
    max_file_bytes: int = DEFAULT_MAX_FILE_BYTES
    memory: MemoryRules = DEFAULT_RULES
    chunks: ChunkStore | None = None
    """Where the bytes of new files go, if not to the database."""
