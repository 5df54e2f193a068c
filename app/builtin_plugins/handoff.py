"""Hand-off: a tool per agent that the model may give its run to. Installed wherever `handoffs` says so."""

from collections.abc import Sequence
from typing import Any

from app.domain.agents.specs import AgentSpec
from app.domain.ids import AgentId
from app.domain.json_values import Json
from app.domain.tools.tool_calls import Effect, ResultStatus, ToolDescriptor, ToolResult
from app.runtime.handoff import handoff_change
from app.runtime.plugins import HookView, Phase, Plugin, Request
from app.runtime.ports import ToolContext

_NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}


def transfer_name(target: AgentId) -> str:
    """What the tool is called that hands off to an agent."""
    return f"transfer_to_{target}"


class _TransferTool:
    """Does nothing itself: that it was called, and let through, is what counts."""

    def __init__(self, target: AgentId) -> None:
        self.target = target
        self._descriptor = ToolDescriptor(
            name=transfer_name(target),
            description=f"Let the agent {target!r} go on with this conversation, from the next step.",
            parameters=_NOTHING,
            effect=Effect.READ,
        )

    @property
    def descriptor(self) -> ToolDescriptor:
        return self._descriptor

    def invalid_arguments(self, arguments: Json) -> str | None:
        return None if arguments in (None, {}) else "this tool takes no arguments"

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult.success(self._descriptor.name, {"transferred_to": self.target})


def handoff_plugin(spec: AgentSpec) -> Plugin:
    """The plugin of an agent that may hand off to others."""
    tools = {tool.descriptor.name: tool for tool in map(_TransferTool, spec.handoffs)}

    async def after_tool(view: HookView) -> Sequence[Request]:
        called = None if view.call is None else tools.get(view.call.name)
        if called is None or view.result is None or view.result.status is not ResultStatus.SUCCESS:
            return []
        return [handoff_change(called.target)]

    return Plugin(
        name="handoff", hooks={Phase.AFTER_TOOL_EXECUTE: after_tool}, tools=tuple(tools.values())
    )
