"""The size of an event, and the merging of adjacent deltas up to a size limit."""

from app.domain.events.agent_events import AgentEvent
from app.domain.events.step_events import MessageDone, ReasoningDelta, TextDelta
from app.domain.events.tool_call_events import (
    ActivityDelta,
    ActivitySnapshot,
    ToolCallDelta,
    ToolCallStreamDelta,
)
from app.domain.json_values import compact

MAX_DELTA_BYTES = 65_536
"""Most characters of a merged delta, because clients' parsers limit the size of an event."""


def size_of(event: AgentEvent) -> int:
    """Bytes of the text of an event whose length the model or a tool decides; 0 for other events."""
    match event:
        case TextDelta() | ReasoningDelta() | ToolCallStreamDelta():
            return _bytes_of(event.delta)
        case ToolCallDelta():
            return _bytes_of(event.args_delta)
        case MessageDone():
            return sum(_bytes_of(block.get("text", "")) for block in event.message["content"])
        case ActivitySnapshot():
            return _bytes_of(compact(event.content))
        case ActivityDelta():
            return _bytes_of(compact(event.patch))
        case _:
            return 0


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def merge_deltas(first: AgentEvent, second: AgentEvent) -> AgentEvent | None:
    """Two adjacent deltas of one message as one; None if they are something else or too long."""
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
