"""When an agent's model sees a search tool in place of the descriptions of all tools."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

DEFAULT_THRESHOLD = 40
"""Beyond this many tools, models choose worse, and each step pays for all descriptions."""


class ToolSearchMode(StrEnum):
    """`auto`: only if the agent has more tools than the threshold."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class ToolSearchPolicy(Struct, frozen=True, kw_only=True):
    """`always` has globs of tools that are shown without a search."""

    mode: ToolSearchMode = ToolSearchMode.AUTO
    threshold: int = DEFAULT_THRESHOLD
    always: tuple[str, ...] = ()

    def applies_to(self, tools: int) -> bool:
        """Whether an agent with so many tools gets the search tool."""
        if self.mode is ToolSearchMode.AUTO:
            return tools > self.threshold
        return self.mode is ToolSearchMode.ON


def tool_search_to_json(policy: ToolSearchPolicy) -> dict[str, Any]:
    return {"mode": policy.mode, "threshold": policy.threshold, "always": list(policy.always)}


def tool_search_from_json(raw: Mapping[str, Any]) -> ToolSearchPolicy:
    return ToolSearchPolicy(
        mode=ToolSearchMode(raw["mode"]), threshold=raw["threshold"], always=tuple(raw["always"])
    )
