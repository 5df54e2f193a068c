"""Tools whose executions each insert a row with the key, the call and the attempt.

The row is the effect of the tool, written at its start. The tool then sleeps, so that its process can die
before the result is stored.
"""

import asyncio
import os
from typing import Literal

import asyncpg

from holdfast import SuspensionRequest, ToolContext, tool

_EFFECT = """
INSERT INTO chaos.effects (tool, what, key, run_id, call_id, pid, attempt)
VALUES ($1, $2, $3, $4, $5, $6, (SELECT attempt FROM runs WHERE id = $4))
"""


@tool(effect="read")
async def look(what: str, ctx: ToolContext, seconds: float = 0.2) -> str:
    """Changes nothing, so it may be repeated."""
    return await _done("look", what, ctx, seconds)


@tool(effect="idempotent")
async def put(what: str, ctx: ToolContext, seconds: float = 0.2) -> str:
    """Has one effect per idempotency key."""
    return await _done("put", what, ctx, seconds)


@tool(effect="unsafe")
async def send(what: str, ctx: ToolContext, seconds: float = 0.2) -> str:
    """Has an effect per execution."""
    return await _done("send", what, ctx, seconds)


@tool(effect="unsafe")
async def pay(what: str, ctx: ToolContext, seconds: float = 0.1) -> str:
    """Has an effect per execution, and needs approval."""
    return await _done("pay", what, ctx, seconds)


@tool(effect="unsafe")
async def ask(what: str, ctx: ToolContext) -> str | SuspensionRequest:
    """Asks a person itself, and has its effect after the answer."""
    if ctx.suspension_id is None:
        return ctx.suspend(f"May I do {what}?")
    return await _done("ask", what, ctx, 0.0)


@tool(effect="unsafe")
async def receive(what: str, ctx: ToolContext) -> str:
    """Waits for an event, and then has its effect."""
    payload = await ctx.wait_for("happened", what)
    return await _done("receive", str(payload), ctx, 0.0)


@tool(effect="read")
async def flood(what: str, ctx: ToolContext, pieces: Literal[20, 60] = 20) -> str:
    """Streams more output than a connection buffers."""
    for _ in range(pieces):
        ctx.stream_output("x" * 50_000)
        await asyncio.sleep(0.01)
    return await _done("flood", what, ctx, 0.0)


async def _done(name: str, what: str, ctx: ToolContext, seconds: float) -> str:
    connection = await asyncpg.connect(os.environ["DATABASE_URL"], timeout=5)
    try:
        await connection.execute(
            _EFFECT, name, what, ctx.idempotency_key, ctx.run.id, ctx.call_id, os.getpid()
        )
    finally:
        await connection.close(timeout=5)
    await asyncio.sleep(seconds)
    return f"{name} {what} is done"
