"""The tools that one request offers the model."""

from collections.abc import Iterable, Sequence

from app.domain.tools.tool_calls import ToolDescriptor
from app.runtime.plugins import HideTools, OnlyTools, Request


def offered_tools(
    tools: Iterable[ToolDescriptor], requests: Sequence[Request]
) -> list[ToolDescriptor]:
    """The offered tools, sorted by name so that equal requests are identical.

    Several `OnlyTools` add up, and `HideTools` wins over them. Unknown names are ignored.
    """
    only = [request.names for request in requests if isinstance(request, OnlyTools)]
    hidden = frozenset[str]().union(
        *(request.names for request in requests if isinstance(request, HideTools))
    )
    allowed = frozenset[str]().union(*only) if only else None
    return sorted(
        (
            tool
            for tool in tools
            if (allowed is None or tool.name in allowed) and tool.name not in hidden
        ),
        key=lambda tool: tool.name,
    )
