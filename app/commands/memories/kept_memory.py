"""Keep a memory: checked, within the limits of its owner, and found by its words."""

from msgspec import Struct

from app.domain.ids import Tenant
from app.domain.memories.checks import check_space, check_value, size_of
from app.domain.memories.memories import MemoryEntry, MemoryLimits, MemoryOwner, NewMemory
from app.domain.redaction import Redact, unredacted
from app.storage.memories import memories
from app.storage.postgres.database import Connection


class MemoryRules(Struct, frozen=True):
    """What may be kept, and in which language it is searched."""

    limits: MemoryLimits
    language: str
    redact: Redact


DEFAULT_RULES = MemoryRules(MemoryLimits(), "english", unredacted)


async def keep(
    connection: Connection, tenant: Tenant, owner: MemoryOwner, new: NewMemory, rules: MemoryRules
) -> MemoryEntry:
    """Insert or replace a memory. Refuses what is too large, too much, or a secret."""
    check_value(new.key, new.value, rules.limits, rules.redact)
    await memories.lock_owner(connection, tenant, owner)
    count, total_bytes = await memories.used_by_others(connection, tenant, owner, new.key)
    check_space(count + 1, total_bytes + size_of(new.key, new.value), rules.limits)
    return await memories.put(connection, tenant, owner, new, rules.language)
