"""Tools that show what they do as an activity."""

from holdfast import ToolContext, tool


@tool(effect="read")
async def plan(width: int, changes: int, ctx: ToolContext) -> str:
    """Shows a plan that changes."""
    ctx.activity("plan", {"steps": list(range(width))})
    for number in range(changes):
        ctx.activity_delta("plan", {"op": "add", "path": "/steps/0", "value": -number})
    return "planned"


@tool(effect="read")
async def plan_later(width: int, ctx: ToolContext) -> str:
    """Shows a plan and one change of it, in the background."""
    ctx.activity("plan", {"steps": list(range(width))})
    ctx.activity_delta("plan", {"op": "add", "path": "/steps/-", "value": width})
    return "planned"
