"""Tools of the agents beside this file."""

from app.tools.functions.decorator import tool


@tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def delete_file(path: str) -> str:
    """Delete a pretend file."""
    return f"Deleted {path}"
