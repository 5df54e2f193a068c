"""The tools of the shop. Replace the dictionary by your own database."""

from holdfast import DidNotHappen, Happened, ToolContext, ToolFailed, tool

_orders = {"7": 80, "8": 25}
_refunds: dict[str, int] = {}
"""Amounts by idempotency key, as a payment provider keeps them."""


@tool(effect="read")
async def find_order(number: str) -> dict[str, object]:
    """Look an order up.

    Args:
        number: the order's number
    """
    if number not in _orders:
        raise ToolFailed("unknown_order", f"There is no order {number}.", may_be_retried=False)
    return {"number": number, "paid": _orders[number]}


async def _find_refund(key: str) -> Happened | DidNotHappen:
    """The outcome of a refund whose worker was lost."""
    amount = _refunds.get(key)
    return DidNotHappen() if amount is None else Happened(f"Refunded {amount}.")


@tool(timeout=20, reconcile=_find_refund)
async def refund(number: str, amount: int, ctx: ToolContext) -> str:
    """Pay money back.

    Args:
        number: the order's number
        amount: how much, in whole euros
    """
    if amount > _orders.get(number, 0):
        raise ToolFailed("too_much", f"Order {number} was not that expensive.")
    _refunds[ctx.idempotency_key] = amount
    return f"Refunded {amount} for order {number}."
