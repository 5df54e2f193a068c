"""The rules of the memory, from the settings."""

from app.commands.memories.kept_memory import MemoryRules
from app.domain.memories.memories import MemoryLimits
from app.domain.redaction import Redact
from app.settings import Settings


def memory_rules(settings: Settings, redact: Redact) -> MemoryRules:
    limits = MemoryLimits(
        value_bytes=settings.max_memory_bytes,
        count=settings.max_memories,
        total_bytes=settings.max_memory_total_bytes,
    )
    return MemoryRules(limits, settings.memory_language, redact)
