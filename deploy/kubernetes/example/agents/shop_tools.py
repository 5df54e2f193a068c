"""Tools of the example agent."""

from holdfast import tool


@tool(effect="read")
async def look_up_order(number: str) -> dict[str, str]:
    """Look up the state of an order."""
    return {"number": number, "state": "sent"}
