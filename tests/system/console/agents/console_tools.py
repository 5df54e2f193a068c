"""Tools for the console's tests."""

import asyncio
import os
import time
from pathlib import Path
from typing import Literal

from holdfast import ResumeMode, SuspensionRequest, ToolContext, tool


@tool(effect="unsafe")
async def refund(
    number: str,
    amount: float,
    lines: list[str] | None = None,
    speed: Literal["now", "later"] = "now",
) -> str:
    """Pay money back for an order.

    Args:
        number: the order's number
        amount: how much, in euros
        lines: the lines of the order, if not all
        speed: when it is paid
    """
    return f"refunded {amount:g} for {number} {speed}"


@tool(effect="read")
async def look_up(number: str) -> str:
    """Look an order up."""
    return f"order {number}"


@tool
async def fill_in(ctx: ToolContext) -> SuspensionRequest:
    """Asks for a delivery."""
    return ctx.suspend(
        "Where to?",
        response_schema={
            "type": "object",
            "properties": {"city": {"type": "string"}, "floor": {"type": "integer"}},
            "required": ["city", "floor"],
            "additionalProperties": False,
        },
        resume_mode=ResumeMode.USE_DECISION_AS_TOOL_RESULT,
    )


@tool
async def ask_freely(ctx: ToolContext) -> SuspensionRequest:
    """Asks for a text."""
    return ctx.suspend("Which colour?", resume_mode=ResumeMode.USE_DECISION_AS_TOOL_RESULT)


@tool(effect="read")
async def wait_for_payment(invoice: str, ctx: ToolContext) -> str:
    """Waits until an invoice is paid."""
    return f"paid {await ctx.wait_for('payment_settled', invoice)}"


@tool(effect="unsafe")
def send(file: str, ctx: ToolContext, hold: bool = False) -> str:
    """Sends a letter: a line in a file. It is held until the file `FILE.open` exists."""
    ctx.stream_output("the letter is on its way\n")
    path = Path(file)
    with path.open("a") as out:
        out.write(f"send {ctx.idempotency_key} {os.getpid()}\n")
    while hold and not path.with_name(f"{path.name}.open").exists():
        time.sleep(0.02)
    return "sent"


@tool(effect="read")
async def crawl() -> str:
    """Looks at all pages, which takes until it is cancelled."""
    await asyncio.Event().wait()
    return "never"
