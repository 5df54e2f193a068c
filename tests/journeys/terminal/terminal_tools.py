"""Tools of the agents beside this file."""

from holdfast import ToolContext, tool


@tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def delete_file(path: str) -> str:
    """Delete a pretend file."""
    return f"Deleted {path}"


@tool
async def receive(key: str, ctx: ToolContext) -> str:
    """Wait for an event, and return its payload."""
    return f"received {await ctx.wait_for('order_paid', key)}"
