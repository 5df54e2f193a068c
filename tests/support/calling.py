"""Calling a function as a tool, as a run would."""

from collections.abc import Callable
from typing import Any

from app.domain.events.run_events import AgentEvent
from app.domain.ids import CallId, RunId, ThreadId
from app.domain.json_values import Json
from app.runtime.ports import ToolContext
from app.tools.functions.decorator import tool


def context(said: list[AgentEvent] | None = None) -> ToolContext:
    return ToolContext(
        run_id=RunId("run"),
        thread_id=ThreadId("thread"),
        call_id=CallId("call"),
        tool_name="tool",
        idempotency_key="run:1:call",
        emit=(said if said is not None else []).append,
    )


async def text_of(function: Callable[..., Any], arguments: Json = None) -> str:
    """What the model would read after a call."""
    return (await tool(function).execute(arguments, context())).text
