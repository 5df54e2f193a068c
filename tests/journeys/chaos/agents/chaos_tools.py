"""Tools whose every execution is a row of a table of their own, with the key, the call and the attempt seen.

The row is written as soon as the tool runs: that is its effect. It then takes a while, so that there is
time to die before the result is known.
"""

import os
from typing import Literal

import asyncpg

from app.clock import sleep
from app.domain.tools.tool_calls import SuspensionRequest
from app.runtime.ports import ToolContext
from app.tools.functions.decorator import tool

_EFFECT = """
INSERT INTO chaos.effects (tool, what, key, run_id, call_id, pid, attempt)
VALUES ($1, $2, $3, $4, $5, $6, (SELECT attempt FROM runs WHERE id = $4))
"""


@tool(effect="read")
async def look(what: str, ctx: ToolContext, seconds: float = 0.2) -> str:
    """Changes nothing, so it may be done again."""
    return await _done("look", what, ctx, seconds)


@tool(effect="idempotent")
async def put(what: str, ctx: ToolContext, seconds: float = 0.2) -> str:
    """Does the same when it is done again under the same key."""
    return await _done("put", what, ctx, seconds)


@tool(effect="unsafe")
async def send(what: str, ctx: ToolContext, seconds: float = 0.2) -> str:
    """Happens once more each time it is done."""
    return await _done("send", what, ctx, seconds)


@tool(effect="unsafe")
async def pay(what: str, ctx: ToolContext, seconds: float = 0.1) -> str:
    """Happens once more each time, and only when somebody has approved it."""
    return await _done("pay", what, ctx, seconds)


@tool(effect="unsafe")
async def ask(what: str, ctx: ToolContext) -> str | SuspensionRequest:
    """Asks somebody itself, and acts when it was answered."""
    if ctx.suspension_id is None:
        return ctx.suspend(f"May I do {what}?")
    return await _done("ask", what, ctx, 0.0)


@tool(effect="unsafe")
async def receive(what: str, ctx: ToolContext) -> str:
    """Waits for an event, and acts once it has come."""
    payload = await ctx.wait_for("happened", what)
    return await _done("receive", str(payload), ctx, 0.0)


@tool(effect="read")
async def flood(what: str, ctx: ToolContext, pieces: Literal[20, 60] = 20) -> str:
    """Shows more than a connection likes to hold."""
    for _ in range(pieces):
        ctx.stream_output("x" * 50_000)
        await sleep(0.01)
    return await _done("flood", what, ctx, 0.0)


async def _done(name: str, what: str, ctx: ToolContext, seconds: float) -> str:
    connection = await asyncpg.connect(os.environ["DATABASE_URL"], timeout=5)
    try:
        await connection.execute(
            _EFFECT, name, what, ctx.idempotency_key, ctx.run_id, ctx.call_id, os.getpid()
        )
    finally:
        await connection.close(timeout=5)
    await sleep(seconds)
    return f"{name} {what} is done"
