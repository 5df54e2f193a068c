"""A tool that runs at once, and one that a person must approve."""

from app.tools.functions.decorator import tool


@tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def risky(what: str) -> str:
    """Something that a person must approve."""
    return f"did {what}"
