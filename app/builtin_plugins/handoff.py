"""Hand-off: the agent gets one tool per agent in `handoffs`, by which the model gives the run to it."""

from collections.abc import Sequence
from typing import Any

from app.domain.agents.specs import AgentSpec
from app.domain.ids import AgentId
from app.domain.json_values import Json
from app.domain.tools.tool_calls import Effect, ResultStatus, ToolDescriptor, ToolResult
from app.runtime.handoff import handoff_change
from app.runtime.plugins import HookView, Phase, Plugin, Request
from app.runtime.ports.tool_context import ToolContext

_NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}


def transfer_name(target: AgentId) -> str:
    """The name of the tool that hands the run off to an agent."""
    return f"transfer_to_{target}"


class _TransferTool:
    """Has no effect of its own: the hook hands the run off after the call was allowed and executed."""

    def __init__(self, target: AgentId) -> None:
        self.target = target
        self._descriptor = ToolDescriptor(
            name=transfer_name(target),
            description=f"Let the agent {target!r} go on with this conversation, from the next step.",
            parameters=_NO_ARGUMENTS,
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
