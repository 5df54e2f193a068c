"""Tools whose every execution can be counted, and held for as long as a test likes.

Each execution is a line in `file`. With `hold` it goes on once there is a file of that name with `.open` behind it.
"""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from app.domain.tools.reconciliation import DidNotHappen, Happened
from app.runtime.ports import ToolContext
from app.tools.functions.decorator import tool


@tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def risky(what: str) -> str:
    """Something that a person must approve."""
    return f"did {what}"


@tool(effect="read")
async def ask(question: str, ctx: ToolContext) -> object:
    """Ask whoever is there."""
    return ctx.suspend(question)


@tool(effect="read")
def look(file: str, ctx: ToolContext, hold: bool = False) -> str:
    """Changes nothing, so it may be done again."""
    return _leave_a_line("look", file, ctx, hold)


@tool(effect="idempotent")
def put(file: str, ctx: ToolContext, hold: bool = False) -> str:
    """Does the same when it is done again under the same key."""
    return _leave_a_line("put", file, ctx, hold)


@tool(effect="unsafe")
def send(file: str, ctx: ToolContext, hold: bool = False) -> str:
    """Happens once more each time it is done."""
    return _leave_a_line("send", file, ctx, hold)


@tool(effect="unsafe")
async def receive(key: str, file: str, ctx: ToolContext) -> str:
    """Waits for an event, and acts once it has come."""
    payload = await ctx.wait_for("payment_settled", key)
    return f"{_leave_a_line('receive', file, ctx, hold=False)} with {payload}"


def _was_paid(key: str, arguments: dict[str, Any]) -> Happened | DidNotHappen:
    file = Path(arguments["file"])
    paid = [line.split()[1] for line in file.read_text().splitlines()] if file.exists() else []
    return Happened("paid before") if key in paid else DidNotHappen()


@tool(effect="unsafe", reconcile=_was_paid)
def pay(file: str, ctx: ToolContext, hold: bool = False) -> str:
    """Happens once more each time it is done, and knows whether it has."""
    return _leave_a_line("pay", file, ctx, hold)


@tool(effect="idempotent")
def die(file: str, ctx: ToolContext) -> str:
    """Takes its process along."""
    _leave_a_line("die", file, ctx, hold=False)
    os._exit(1)


@tool(effect="unsafe")
async def block(file: str, ctx: ToolContext) -> str:
    """Keeps its whole process from doing anything else."""
    return _leave_a_line("block", file, ctx, hold=True)


@tool(effect="read")
async def flood(megabytes: int, ctx: ToolContext) -> str:
    """Shows more than a connection holds."""
    for _ in range(megabytes * 20):
        ctx.stream_output("x" * 50_000)
        await asyncio.sleep(0)  # noqa: TID251  so that pieces are committed and sent as they come
    return "shown"


@tool(effect="read")
def doze(seconds: float) -> str:
    """A thread that nobody can stop."""
    time.sleep(seconds)
    return "awake"


def _leave_a_line(name: str, file: str, ctx: ToolContext, hold: bool) -> str:
    with Path(file).open("a") as lines:
        lines.write(f"{name} {ctx.idempotency_key} {os.getpid()}\n")
    while hold and not Path(f"{file}.open").exists() and not ctx.closed.wait(0.02):
        pass
    return f"{name} is done"
