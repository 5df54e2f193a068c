"""An MCP server that continues calls as tasks. Orders are files of a folder, so they outlive the process.

`SLOW_FOLDER` is the folder. An order is ready when there is the file `ready`. Then the server asks whether it may be
sent, and sends it. The file `log` has one line for each effect.
"""

import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolRequestParams, RequestParams
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

FOLDER = Path(os.environ["SLOW_FOLDER"])
TIMES = {"createdAt": "2026-11-19T00:00:00Z", "lastUpdatedAt": "2026-11-19T00:00:00Z"}
QUESTION = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "May it be sent?",
        "requestedSchema": {
            "type": "object",
            "properties": {"ok": {"type": "boolean"}},
            "required": ["ok"],
        },
    },
}


class TaskParams(RequestParams):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    task_id: str
    input_responses: dict[str, Any] | None = None


def note(line: str) -> None:
    with (FOLDER / "log").open("a") as file:
        file.write(f"{line}\n")


def state(task: str, **more: Any) -> dict[str, Any]:
    poll = int(os.environ.get("SLOW_POLL_MS", "1500"))
    return {"taskId": task, "ttlMs": None, "pollIntervalMs": poll, **TIMES, **more}


def order_of(task: str) -> dict[str, Any]:
    if not (FOLDER / task).exists():
        raise MCPError(-32602, "Unknown task")
    order: dict[str, Any] = json.loads((FOLDER / task).read_text())
    return order


async def get(ctx: ServerRequestContext[Any, Any], params: TaskParams) -> HandlerResult:
    order = order_of(params.task_id)
    if not (FOLDER / "ready").exists():
        return state(params.task_id, status="working", statusMessage="in the works")
    if order["answer"] is None:
        asked = {"send": QUESTION}
        return state(params.task_id, status="input_required", inputRequests=asked)
    text = f"{order['item']} sent: {order['answer']['content']['ok']}"
    result = {"content": [{"type": "text", "text": text}], "isError": False}
    return state(params.task_id, status="completed", result=result)


async def update(ctx: ServerRequestContext[Any, Any], params: TaskParams) -> HandlerResult:
    order = order_of(params.task_id)
    if order["answer"] is None and params.input_responses:
        order["answer"] = params.input_responses["send"]
        (FOLDER / params.task_id).write_text(json.dumps(order))
        note(f"sent {order['item']}")
    return {}


async def cancel(ctx: ServerRequestContext[Any, Any], params: TaskParams) -> HandlerResult:
    note("cancelled")
    return {}


class Tasks(Extension):
    identifier = "io.modelcontextprotocol/tasks"

    def methods(self) -> Sequence[MethodBinding]:
        handlers = {"tasks/get": get, "tasks/update": update, "tasks/cancel": cancel}
        return [
            MethodBinding(method=method, params_type=TaskParams, handler=handler)
            for method, handler in handlers.items()
        ]

    async def intercept_tool_call(
        self,
        params: CallToolRequestParams,
        ctx: ServerRequestContext[Any, Any],
        call_next: CallNext,
    ) -> HandlerResult:
        task = f"order-{uuid.uuid4().hex}"
        order = {"item": (params.arguments or {})["item"], "answer": None}
        (FOLDER / task).write_text(json.dumps(order))
        note(f"ordered {order['item']}")
        return {"resultType": "task", **state(task, status="working")}


shop = MCPServer("slow", version="1.0", extensions=[Tasks()])


@shop.tool()
def order(item: str) -> str:
    """Order an item, which takes days."""
    raise NotImplementedError


if __name__ == "__main__":
    shop.run("stdio")
