"""Which of an agent's tools a model is offered in one step."""

from collections.abc import Iterable, Sequence

from app.domain.tools.tool_calls import ToolDescriptor
from app.runtime.plugins import HideTools, OnlyTools, Request


def offered_tools(
    tools: Iterable[ToolDescriptor], asked: Sequence[Request]
) -> list[ToolDescriptor]:
    """Sorted by name, so that a request is the same whatever order tools came in.

    What several ask to be the only tools adds up; what anybody hides is hidden; names of tools that
    aren't there mean nothing.
    """
    only = [request.names for request in asked if isinstance(request, OnlyTools)]
    hidden = frozenset[str]().union(
        *(request.names for request in asked if isinstance(request, HideTools))
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
