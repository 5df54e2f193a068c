"""The memories that tools and plugins of a run or a background task use."""

from collections.abc import Sequence

from msgspec import Struct

from app.commands.memories.from_tool import delete_from_tool, save_from_tool
from app.commands.memories.kept_memory import MemoryRules
from app.commands.tool_owner import ToolOwner
from app.domain.memories.memories import MemoryEntry, MemoryOwner
from app.domain.memories.writes import MemoryWrite
from app.storage.memories import memories, recall
from app.storage.postgres.database import Database
from app.storage.postgres.retrying import retry_while_unavailable


class StoredMemories(Struct, frozen=True):
    """Writes are fenced: a worker that has lost the run or the task raises `OwnershipLost`."""

    database: Database
    tool_owner: ToolOwner
    rules: MemoryRules

    async def get(self, owner: MemoryOwner, key: str) -> MemoryEntry | None:
        async def read() -> MemoryEntry | None:
            async with self.database.reading_by_key() as connection:
                return await memories.get(connection, self.tool_owner.tenant, owner, key)

        return await retry_while_unavailable(read)

    async def newest(self, owner: MemoryOwner, limit: int) -> Sequence[MemoryEntry]:
        async def read() -> Sequence[MemoryEntry]:
            async with self.database.reading_by_key() as connection:
                return await memories.newest(connection, self.tool_owner.tenant, owner, limit)

        return await retry_while_unavailable(read)

    async def search(self, owner: MemoryOwner, query: str, limit: int) -> Sequence[MemoryEntry]:
        async def read() -> Sequence[MemoryEntry]:
            async with self.database.reading() as connection:
                return await recall.most_relevant(
                    connection,
                    self.tool_owner.tenant,
                    owner,
                    query,
                    limit,
                    self.rules.language,
                )

        return await retry_while_unavailable(read)

    async def save(self, owner: MemoryOwner, write: MemoryWrite) -> None:
        async def save_once() -> None:
            await save_from_tool(self.database, self.tool_owner, owner, write, self.rules)

        await retry_while_unavailable(save_once)

    async def delete(self, owner: MemoryOwner, write: MemoryWrite) -> bool:
        async def delete_once() -> bool:
            return await delete_from_tool(self.database, self.tool_owner, owner, write)

        return await retry_while_unavailable(delete_once)
