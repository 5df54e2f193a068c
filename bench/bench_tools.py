"""The tools of the agents that are measured: they cost nothing themselves."""

from app.tools.functions.decorator import tool


@tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@tool
async def risky(path: str) -> str:
    """Do what somebody has to approve."""
    return f"did {path}"
