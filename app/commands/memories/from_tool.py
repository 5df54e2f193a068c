"""Writes of running tool calls to the memory: fenced, and once for each call."""

from app.commands.memories.kept_memory import MemoryRules, keep
from app.commands.tool_owner import ToolOwner, locked_run
from app.domain.memories.memories import MemoryOwner, NewMemory
from app.domain.memories.writes import MemoryWrite
from app.storage.memories import deletions, memories, writes
from app.storage.postgres.database import Database


async def save_from_tool(
    database: Database,
    tool_owner: ToolOwner,
    owner: MemoryOwner,
    write: MemoryWrite,
    rules: MemoryRules,
) -> None:
    """Save a memory, unless an execution of the call has done this write before."""
    async with database.transaction() as connection:
        run = await locked_run(connection, tool_owner)
        if not await writes.record(connection, run.tenant, run.id, write):
            return
        new = NewMemory(
            key=write.key,
            value=write.value,
            saved_by=run.started_by,
            agent_id=write.agent_id,
            run_id=run.id,
        )
        await keep(connection, run.tenant, owner, new, rules)


async def delete_from_tool(
    database: Database, tool_owner: ToolOwner, owner: MemoryOwner, write: MemoryWrite
) -> bool:
    """Delete a memory once. True if this write has deleted it, now or before."""
    async with database.transaction() as connection:
        run = await locked_run(connection, tool_owner)
        await memories.lock_owner(connection, run.tenant, owner)
        if await writes.is_recorded(connection, run.tenant, run.id, write):
            return True
        if not await memories.remove(connection, run.tenant, owner, write.key):
            return False
        await writes.record(connection, run.tenant, run.id, write)
        await deletions.add(
            connection, run.tenant, owner, 1, deleted_by=run.started_by, run_id=run.id
        )
        return True
