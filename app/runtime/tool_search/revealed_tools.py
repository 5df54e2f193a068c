"""The tools that a run has revealed to its model: its state key, and their place in requests."""

from collections.abc import Iterable, Sequence

from app.domain.tools.tool_calls import ToolDescriptor
from app.runtime.state import MergeStrategy, StateKey, StateView
from app.runtime.tool_search.search_tool import ToolSearch

MAX_REVEALED = 128
"""Providers refuse requests with more tools, and each one is paid for at each step."""


def newly_revealed(before: Sequence[str], names: Sequence[str]) -> list[str]:
    """Those of the names that become revealed, each once, as far as the limit allows."""
    new = [name for name in dict.fromkeys(names) if name not in before]
    return new[: max(0, MAX_REVEALED - len(before))]


def _append(before: Sequence[str], names: Sequence[str]) -> list[str]:
    return [*before, *newly_revealed(before, names)]


REVEALED_TOOLS: StateKey[Sequence[str], Sequence[str]] = StateKey(
    "__runtime.revealed_tools", list, _append, merge=MergeStrategy.COMMUTATIVE
)
"""Their names, in the order in which they were revealed."""


def known_tools(
    tools: Iterable[ToolDescriptor], search: ToolSearch | None, state: StateView
) -> list[ToolDescriptor]:
    """Those of an agent's tools that its next request has, as far as plugins allow them."""
    if search is None:
        return list(tools)
    revealed = state.get(REVEALED_TOOLS)
    hidden = search.deferred.keys() - set(revealed)
    return [tool for tool in tools if tool.name not in hidden]
