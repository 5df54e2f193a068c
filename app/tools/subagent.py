"""Delegates: a call of such a tool starts a run of another agent and waits for it."""

from typing import Any

from app.domain.agents.specs import AgentSpec
from app.domain.children.child_runs import delegate_tool_name
from app.domain.json_values import Json, as_object
from app.domain.tools.tool_calls import Effect, ToolDescriptor, ToolResult
from app.runtime.ports.tool_context import ToolContext

SHOWN_OF_PROMPT = 100
_PARAMETERS = {
    "type": "object",
    "properties": {
        "prompt": {
            "type": "string",
            "description": "What the agent is to do. It knows only what this prompt says.",
        }
    },
    "required": ["prompt"],
    "additionalProperties": False,
}


class SubagentTool:
    """Never executed: `runtime/tool_calls/delegate` starts a child run instead."""

    def __init__(self, target: AgentSpec) -> None:
        self.target = target
        about = target.description or target.system_prompt[:SHOWN_OF_PROMPT]
        self._descriptor = ToolDescriptor(
            name=delegate_tool_name(target.id),
            description=f"Give a task to the agent {target.id!r} and get its answer. {about}".strip(),
            parameters=_PARAMETERS,
            effect=Effect.IDEMPOTENT,
        )

    @property
    def descriptor(self) -> ToolDescriptor:
        return self._descriptor

    def invalid_arguments(self, arguments: Json) -> str | None:
        given = as_object(arguments) or {}
        prompt = given.get("prompt")
        if not isinstance(prompt, str) or not prompt.strip():
            return "prompt must be a string that isn't empty"
        unknown = sorted(set(given) - {"prompt"})
        return f"unknown: {', '.join(unknown)}" if unknown else None

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult.error(self._descriptor.name, "an agent can be given work by a run only")
