"""Calls a function as a tool, as a run does."""

from collections.abc import Callable
from typing import Any

from app.domain.events.agent_events import AgentEvent
from app.domain.ids import CallId
from app.domain.json_values import Json
from app.domain.runs.run_info import run_info
from app.runtime.ports.tool_context import ToolContext
from app.tools.functions.decorator import tool
from tests.support.records import a_record


def context(emitted: list[AgentEvent] | None = None) -> ToolContext:
    return ToolContext(
        run=run_info(a_record()),
        call_id=CallId("call"),
        tool_name="tool",
        idempotency_key="run:1:call",
        emit=(emitted if emitted is not None else []).append,
    )


async def text_of(function: Callable[..., Any], arguments: Json = None) -> str:
    """The text that the model reads after a call."""
    return (await tool(function).execute(arguments, context())).text
