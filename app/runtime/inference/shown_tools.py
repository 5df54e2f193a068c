"""The tools of a request: all that plugins allow. Of an agent with a search tool, only those that are always shown,
then the revealed ones in their order.

The revealed tools are state of the run. They are only appended, so each request begins with the tools of the
one before.
"""

from collections.abc import Iterable, Sequence

from app.domain.tools.tool_calls import ToolDescriptor
from app.runtime.active_run import ActiveRun
from app.runtime.plugins import HideTools, OnlyTools, Request
from app.runtime.state import Change, ChangeBatch
from app.runtime.tool_search.revealed_tools import REVEALED_TOOLS, newly_revealed
from app.runtime.tool_search.search_tool import ToolSearch


def shown_tools(run: ActiveRun, requests: Sequence[Request]) -> list[ToolDescriptor]:
    """The tools of the current step's request. Those that a plugin names with `OnlyTools` need no search."""
    descriptors = (tool.descriptor for tool in run.agent.tools.values())
    tools = (descriptor for descriptor in descriptors if descriptor.is_offered)
    search = run.agent.tool_search
    if search is None:
        return offered_tools(tools, requests)
    run.tool_requests = requests
    if any(isinstance(request, OnlyTools) for request in requests):
        _reveal(run, [tool.name for tool in offered_tools(search.deferred.values(), requests)])
    always = [tool for tool in tools if tool.name not in search.deferred]
    return [*offered_tools(always, requests), *_revealed(run, search, requests)]


def _revealed(
    run: ActiveRun, search: ToolSearch, requests: Sequence[Request]
) -> list[ToolDescriptor]:
    names = run.state.snapshot.get(REVEALED_TOOLS)
    revealed = [search.deferred[name] for name in names if name in search.deferred]
    allowed = {tool.name for tool in offered_tools(revealed, requests)}
    return [tool for tool in revealed if tool.name in allowed]


def _reveal(run: ActiveRun, names: Sequence[str]) -> None:
    new = newly_revealed(run.state.snapshot.get(REVEALED_TOOLS), names)
    if new:
        run.change_state(ChangeBatch([Change(REVEALED_TOOLS, new)]))


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
