"""Put a memory of a client: its own, or with the scope `memories:all` that of any owner."""

from app.commands.memories.kept_memory import MemoryRules, keep
from app.context import ServiceContext
from app.domain.json_values import Json
from app.domain.memories.access import require_owner
from app.domain.memories.checks import checked_key
from app.domain.memories.memories import MemoryEntry, MemoryOwner, NewMemory
from app.domain.principals import Principal


async def put_memory(
    ctx: ServiceContext, principal: Principal, owner: MemoryOwner, key: str, value: Json
) -> MemoryEntry:
    require_owner(principal, owner)
    new = NewMemory(key=checked_key(key), value=value, saved_by=principal.subject)
    rules = MemoryRules(ctx.limits.memory, ctx.memory_language, ctx.redact)
    async with ctx.database.transaction() as connection:
        return await keep(connection, principal.tenant, owner, new, rules)
