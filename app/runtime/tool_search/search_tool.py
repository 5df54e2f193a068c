"""The search tool, and which of an agent's tools it finds."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from app.domain.json_values import Json, JsonObject, as_object
from app.domain.tools.tool_calls import Effect, ToolDescriptor, ToolResult
from app.runtime.ports.tool_context import ToolContext
from app.runtime.ports.tools import Tool
from app.runtime.tool_search.ranking import ranked

SEARCH_TOOL_NAME = "search_tools"
MAX_QUERY_CHARACTERS = 500
MAX_FOUND, DEFAULT_FOUND = 20, 5
_MAX_SHOWN_OF_DESCRIPTION = 300
_ARGUMENTS = frozenset({"query", "limit"})
_PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "description": "Words for what the tool has to do, or the tool's name.",
            "minLength": 1,
            "maxLength": MAX_QUERY_CHARACTERS,
        },
        "limit": {
            "type": "integer",
            "description": f"How many tools to show at most; {DEFAULT_FOUND} without it.",
            "minimum": 1,
            "maximum": MAX_FOUND,
        },
    },
    "required": ["query"],
    "additionalProperties": False,
}


class SearchTool:
    """Never executed: the gate answers its calls, because the answer changes what the run shows the model."""

    def __init__(self, name: str, deferred: Collection[ToolDescriptor]) -> None:
        self._descriptor = ToolDescriptor(
            name=name,
            description=(
                f"Find more tools. Besides the tools that you see there are {len(deferred)} others:"
                f" {groups_of(deferred)}. A search shows the descriptions of those that fit; from your next step"
                " on you can call them."
            ),
            parameters=_PARAMETERS,
            effect=Effect.READ,
        )

    @property
    def descriptor(self) -> ToolDescriptor:
        return self._descriptor

    def invalid_arguments(self, arguments: Json) -> str | None:
        given = as_object(arguments) or {}
        query, limit = given.get("query"), given.get("limit", DEFAULT_FOUND)
        if not isinstance(query, str) or not 0 < len(query.strip()) <= MAX_QUERY_CHARACTERS:
            return f"query must be a string of 1 to {MAX_QUERY_CHARACTERS} characters"
        if type(limit) is not int or not 1 <= limit <= MAX_FOUND:
            return f"limit must be a number from 1 to {MAX_FOUND}"
        unknown = sorted(set(given) - _ARGUMENTS)
        return f"unknown: {', '.join(unknown)}" if unknown else None

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult.error(self._descriptor.name, "tools can be searched by a run only")


class ToolSearch(Struct, frozen=True):
    """An agent's search tool, and the tools that are shown only after they were asked for."""

    tool: SearchTool
    deferred: Mapping[str, ToolDescriptor]

    @property
    def name(self) -> str:
        return self.tool.descriptor.name

    def found(
        self, arguments: JsonObject, allowed: Sequence[ToolDescriptor]
    ) -> list[ToolDescriptor]:
        """The best of the tools that plugins allow, for checked arguments."""
        return ranked(arguments["query"], allowed)[: arguments.get("limit", DEFAULT_FOUND)]

    def result(self, found: Sequence[ToolDescriptor], revealed: Sequence[str]) -> ToolResult:
        """What the model reads. `revealed` are the names that are shown from the next step on."""
        if not found:
            message = (
                "No tool fits. Use other words for what it has to do. There are:"
                f" {groups_of(self.deferred.values())}."
            )
            return ToolResult.success(self.name, {"tools": []}, message)
        lines = [f"- {tool.name}: {_shortened(tool.description)}" for tool in found]
        shown = set(revealed)
        missing = [tool.name for tool in found if tool.name not in shown]
        note = "You can call these tools from your next step on."
        if missing:
            note = (
                f"Too many tools are shown already. These are not shown: {', '.join(missing)}."
                " Use the tools that you see."
            )
        names: list[Json] = [tool.name for tool in found if tool.name in shown]
        return ToolResult.success(self.name, {"tools": names}, "\n".join([note, *lines]))


def tool_search_of(tools: Mapping[str, Tool], deferred: Collection[str]) -> ToolSearch:
    """The search for these of an agent's tools. Its name differs from those of all tools."""
    name = SEARCH_TOOL_NAME
    while name in tools:
        name += "_"
    descriptors = {name: tools[name].descriptor for name in sorted(deferred)}
    return ToolSearch(SearchTool(name, descriptors.values()), descriptors)


def groups_of(tools: Collection[ToolDescriptor]) -> str:
    """How many tools each MCP server has, and how many there are besides."""
    sources = Counter(tool.source for tool in tools)
    others = sources.pop(None, 0)
    groups = [f"{count} of {source}" for source, count in sorted(sources.items(), key=str)]
    if others:
        groups.append(f"{others} without a server" if groups else str(others))
    return ", ".join(groups)


def _shortened(description: str) -> str:
    text = " ".join(description[: 2 * _MAX_SHOWN_OF_DESCRIPTION].split())
    is_whole = len(text) <= _MAX_SHOWN_OF_DESCRIPTION
    return text if is_whole else f"{text[:_MAX_SHOWN_OF_DESCRIPTION]}…"
