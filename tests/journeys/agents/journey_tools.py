"""Tools whose executions a test can count and hold.

Each execution appends a line to `file`. With `hold` it waits for a file of that name with the suffix `.open`.
"""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from holdfast import DidNotHappen, Happened, ToolContext, tool


@tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def risky(what: str) -> str:
    """A call that a person must approve."""
    return f"did {what}"


@tool(effect="read")
async def ask(question: str, ctx: ToolContext) -> object:
    """Ask a person."""
    return ctx.suspend(question)


@tool(effect="read")
def look(file: str, ctx: ToolContext, hold: bool = False) -> str:
    """Changes nothing, so it may be repeated."""
    return _append("look", file, ctx, hold)


@tool(effect="idempotent")
def put(file: str, ctx: ToolContext, hold: bool = False) -> str:
    """Has one effect per idempotency key."""
    return _append("put", file, ctx, hold)


@tool(effect="unsafe")
def send(file: str, ctx: ToolContext, hold: bool = False) -> str:
    """Has an effect per execution."""
    return _append("send", file, ctx, hold)


@tool(effect="unsafe")
async def receive(key: str, file: str, ctx: ToolContext) -> str:
    """Waits for an event, and then has its effect."""
    payload = await ctx.wait_for("payment_settled", key)
    return f"{_append('receive', file, ctx, hold=False)} with {payload}"


def _was_paid(key: str, arguments: dict[str, Any]) -> Happened | DidNotHappen:
    file = Path(arguments["file"])
    paid = [line.split()[1] for line in file.read_text().splitlines()] if file.exists() else []
    return Happened("paid before") if key in paid else DidNotHappen()


@tool(effect="unsafe", reconcile=_was_paid)
def pay(file: str, ctx: ToolContext, hold: bool = False) -> str:
    """Has an effect per execution; its reconciler knows whether it happened."""
    return _append("pay", file, ctx, hold)


@tool(effect="idempotent")
def die(file: str, ctx: ToolContext) -> str:
    """Kills its process."""
    _append("die", file, ctx, hold=False)
    os._exit(1)


@tool(effect="unsafe")
async def block(file: str, ctx: ToolContext) -> str:
    """Blocks the event loop of its process."""
    return _append("block", file, ctx, hold=True)


@tool(effect="read")
async def flood(megabytes: int, ctx: ToolContext) -> str:
    """Streams more output than a connection buffers."""
    for _ in range(megabytes * 20):
        ctx.stream_output("x" * 50_000)
        await asyncio.sleep(0)
    return "shown"


@tool(effect="read")
def doze(seconds: float) -> str:
    """Sleeps in a thread that can't be interrupted."""
    time.sleep(seconds)
    return "awake"


def _append(name: str, file: str, ctx: ToolContext, hold: bool) -> str:
    with Path(file).open("a") as lines:
        lines.write(f"{name} {ctx.idempotency_key} {os.getpid()}\n")
    while hold and not Path(f"{file}.open").exists() and not ctx.closed.wait(0.02):
        pass
    return f"{name} is done"
