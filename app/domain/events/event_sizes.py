"""How much an event holds, and adjacent deltas made one for as long as that one isn't too large."""

from app.domain.events.run_events import (
    ActivityDelta,
    ActivitySnapshot,
    AgentEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStreamDelta,
)
from app.domain.json_values import compact

MAX_DELTA_BYTES = 65_536
"""Characters of a delta that others are joined to: clients' parsers bound what an event may hold."""


def size_of(event: AgentEvent) -> int:
    """Bytes that an event holds, of those that a model or a tool may make as long and as many as it likes."""
    match event:
        case TextDelta() | ReasoningDelta() | ToolCallStreamDelta():
            return _bytes_of(event.delta)
        case ToolCallDelta():
            return _bytes_of(event.args_delta)
        case ActivitySnapshot():
            return _bytes_of(compact(event.content))
        case ActivityDelta():
            return _bytes_of(compact(event.patch))
        case _:
            return 0


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def merge_deltas(first: AgentEvent, second: AgentEvent) -> AgentEvent | None:
    """Two adjacent deltas of one message as one, or nothing when they aren't that, or too long."""
    match first, second:
        case TextDelta(a), TextDelta(b) if _is_short(a, b):
            return TextDelta(a + b)
        case ReasoningDelta(a), ReasoningDelta(b) if _is_short(a, b):
            return ReasoningDelta(a + b)
        case ToolCallDelta(id_a, a), ToolCallDelta(id_b, b) if id_a == id_b and _is_short(a, b):
            return ToolCallDelta(id_a, a + b)
        case ToolCallStreamDelta(id_a, name, a), ToolCallStreamDelta(id_b, _, b) if (
            id_a == id_b and _is_short(a, b)
        ):
            return ToolCallStreamDelta(id_a, name, a + b)
        case _:
            return None


def _is_short(a: str, b: str) -> bool:
    return len(a) + len(b) <= MAX_DELTA_BYTES
