"""Cache markers: the API caches the beginning of a request up to each of them, at most four."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.llm.anthropic.options import Body

USUAL: Mapping[str, Any] = {
    "cache_tool_definitions": True,
    "cache_instructions": True,
    "cache_messages": True,
}
"""At the end of the tools, of the system prompt and of the conversation."""
_SHORT, _LONG = "5m", "1h"
_CACHEABLE = frozenset({"text", "tool_use", "server_tool_use", "image", "tool_result", "document"})


def add_markers(body: Body, settings: Mapping[str, Any] | None) -> None:
    """Add the markers to a request's body, whose last messages have a block for one. Settings of None mean the
    usual ones."""
    wanted = USUAL if settings is None else settings
    conversation = [block for message in body["messages"] for block in message["content"]]
    places: list[tuple[Any, Body | None]] = [
        (wanted.get("cache_tool_definitions"), _last(body.get("tools", ()))),
        (wanted.get("cache_instructions"), _last(body.get("system", ()))),
        (wanted.get("cache_messages"), _last_cacheable(conversation)),
        # This one lets the API choose the place in the conversation.
        (None if wanted.get("cache_messages") else wanted.get("cache"), body),
    ]
    lifetime = _SHORT
    for setting, place in reversed(places):
        if setting and place is not None:
            # A marker before one that lives longer must live as long.
            lifetime = _LONG if _LONG in (setting, lifetime) else _SHORT
            place["cache_control"] = {"type": "ephemeral", "ttl": lifetime}


def is_cacheable(block: Body) -> bool:
    return block["type"] in _CACHEABLE and block.get("text") != ""


def _last(blocks: Sequence[Body]) -> Body | None:
    return blocks[-1] if blocks else None


def _last_cacheable(blocks: Sequence[Body]) -> Body | None:
    return next((block for block in reversed(blocks) if is_cacheable(block)), None)
