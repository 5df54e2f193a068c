"""A look-up, a refund and an e-mail. The last two leave a line in a file, so that a test can count them."""

import os
from pathlib import Path

from holdfast import ToolContext, tool

ORDERS = {"A-7": {"item": "lamp", "paid": 400.0}}


@tool(effect="read")
async def find_order(number: str) -> dict[str, object]:
    """Look an order up."""
    return ORDERS.get(number, {"problem": "There is no such order."})


@tool(timeout=20)
async def refund(number: str, amount: float, ctx: ToolContext) -> str:
    """Pay money back for an order."""
    _note(f"refund {ctx.idempotency_key}")
    return f"Refunded {amount} for order {number}."


@tool(timeout=20)
async def send_email(to: str, text: str, ctx: ToolContext) -> str:
    """Send an e-mail to a customer."""
    _note(f"e-mail {ctx.idempotency_key}")
    return f"Sent to {to}: {text}"


def _note(line: str) -> None:
    with Path(os.environ["SHOP_LOG"]).open("a") as file:
        file.write(f"{line}\n")
