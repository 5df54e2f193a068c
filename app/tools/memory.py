"""The tools of agents with the plugin `memory`: save, search, list and forget."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType

from app.domain.errors import MemoryUnavailable, Refusal
from app.domain.json_values import JsonObject
from app.domain.memories.checks import size_of, text_of
from app.domain.memories.memories import MemoryEntry
from app.domain.memories.tool_names import (
    MEMORY_FORGET,
    MEMORY_LIST,
    MEMORY_SAVE,
    MEMORY_SEARCH,
)
from app.domain.timestamps import format_timestamp
from app.runtime.ports.tool_context import ToolContext
from app.runtime.ports.tools import Tool
from app.tools.functions.decorator import tool
from app.tools.functions.failure import ToolFailed

MAX_LISTED = 40
MAX_LISTED_CHARACTERS = 200
"""Of each value in a list."""
MAX_FOUND = 10


@tool(name=MEMORY_SAVE, effect="idempotent")
async def save(key: str, text: str, ctx: ToolContext) -> JsonObject:
    """Save a fact so that later conversations know it. Replaces what is saved under the same key.

    Save what stays useful: preferences, names, decisions, how something is done. Don't save what only matters
    now. Passwords, keys and tokens are refused.

    Args:
        key: A short name for the fact, such as favourite_colour. It has letters, digits, _ . : and - only.
        text: The fact, in one or two sentences.
    """
    async with _refusals_shown():
        await ctx.memory.set(key, text)
    return {"saved": key, "bytes": size_of(key, text)}


@tool(name=MEMORY_SEARCH, effect="read")
async def search(query: str, ctx: ToolContext, limit: int = 5) -> JsonObject:
    """Search what was saved in earlier conversations. Returns the memories that fit best.

    Args:
        query: Words that the memory may have.
        limit: How many memories to return, at most 10.
    """
    async with _refusals_shown():
        found = await ctx.memory.search(query, limit=min(limit, MAX_FOUND))
    return {"memories": _shown(found, None)}


@tool(name=MEMORY_LIST, effect="read")
async def list_memories(ctx: ToolContext) -> JsonObject:
    """List what was saved in earlier conversations, the newest first. Long texts are cut."""
    async with _refusals_shown():
        found = await ctx.memory.newest(limit=MAX_LISTED + 1)
    return {
        "memories": _shown(found[:MAX_LISTED], MAX_LISTED_CHARACTERS),
        "has_more": len(found) > MAX_LISTED,
    }


@tool(name=MEMORY_FORGET, effect="idempotent")
async def forget(key: str, ctx: ToolContext) -> JsonObject:
    """Delete a saved memory for good. Do it when the user asks for it, or when the memory is wrong.

    Args:
        key: The key of the memory, as memory_search or memory_list returned it.
    """
    async with _refusals_shown():
        return {"key": key, "forgotten": await ctx.memory.delete(key)}


MEMORY_TOOLS: Mapping[str, Tool] = MappingProxyType(
    {each.descriptor.name: each for each in (save, search, list_memories, forget)}
)
"""The tools by name."""


@asynccontextmanager
async def _refusals_shown() -> AsyncIterator[None]:
    """Let the model read why something is refused. Another try would fail again."""
    try:
        yield
    except Refusal as refused:
        raise ToolFailed(refused.code, refused.detail, may_be_retried=False) from refused
    except MemoryUnavailable as error:
        raise ToolFailed("memory_unavailable", str(error), may_be_retried=False) from error


def _shown(entries: Sequence[MemoryEntry], max_characters: int | None) -> list[JsonObject]:
    return [
        {
            "key": entry.key,
            "value": entry.value
            if max_characters is None or len(text_of(entry.value)) <= max_characters
            else f"{text_of(entry.value)[:max_characters]}…",
            "saved_at": format_timestamp(entry.updated_at),
        }
        for entry in entries
    ]
