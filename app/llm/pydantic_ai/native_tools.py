"""Tools that the provider itself runs. A model has none unless its options name them."""

from collections.abc import Sequence
from typing import Any

from pydantic_ai.models import Model
from pydantic_ai.native_tools import (
    AbstractNativeTool,
    CodeExecutionTool,
    WebFetchTool,
    WebSearchTool,
)

from app.domain.errors import ConfigurationError

OPTION = "native_tools"
_TOOLS: dict[str, type[AbstractNativeTool]] = {
    tool.kind: tool for tool in (WebSearchTool, WebFetchTool, CodeExecutionTool)
}


def native_tools_of(names: Any, model: Model) -> Sequence[AbstractNativeTool]:
    """The tools with these names, in the order of the names, so that requests begin with the same bytes."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(f"options.{OPTION} must be a list of names")
    supported = model.profile.get("supported_native_tools", frozenset())
    for name in names:
        if name not in _TOOLS:
            known = ", ".join(sorted(_TOOLS))
            raise ConfigurationError(f"options.{OPTION} names {name!r}; there are: {known}")
        if _TOOLS[name] not in supported:
            raise ConfigurationError(
                f"options.{OPTION} names {name!r}, which this model's provider doesn't have"
            )
    return [_TOOLS[name]() for name in dict.fromkeys(names)]
