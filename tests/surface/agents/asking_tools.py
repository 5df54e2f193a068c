"""Tools that suspend for a person: for approval, for arguments, or for a result."""

import asyncio

from holdfast import ResumeMode, SuspensionRequest, ToolContext, tool


@tool
async def risky(what: str) -> str:
    """Something that a person must approve."""
    return f"did {what}"


@tool
async def adjust(amount: int, ctx: ToolContext) -> str | SuspensionRequest:
    """Asks for its arguments."""
    if ctx.resume_input is None:
        return ctx.suspend("How much?", resume_mode=ResumeMode.PASS_DECISION_TO_TOOL)
    return f"adjusted by {amount}"


@tool
async def fill_in(ctx: ToolContext) -> SuspensionRequest:
    """Asks for its result: a whole number."""
    return ctx.suspend(
        "Which number?",
        response_schema={"type": "integer"},
        resume_mode=ResumeMode.USE_DECISION_AS_TOOL_RESULT,
    )


@tool(effect="read")
async def paid(invoice: str, ctx: ToolContext) -> str:
    """Waits until an invoice is paid."""
    amount = await ctx.wait_for("payment_settled", invoice, schema={"type": "integer"})
    return f"paid {amount}"


@tool(effect="read")
async def later() -> str:
    """Runs until it is cancelled."""
    await asyncio.Event().wait()
    return "done"
