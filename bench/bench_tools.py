"""Tools of the measured agents; they do no work."""

from app.tools.functions.decorator import tool


@tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@tool
async def risky(path: str) -> str:
    """Do something that needs approval."""
    return f"did {path}"
