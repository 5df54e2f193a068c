"""The agents of this folder, tested without a model and without a server."""

import asyncio
from pathlib import Path

from holdfast.testing import call, run_agent, say

AGENTS = Path(__file__).with_name("agents.toml")


def test_a_refund_is_handed_over_and_approved() -> None:
    asyncio.run(_refund_is_handed_over_and_approved())


async def _refund_is_handed_over_and_approved() -> None:
    script = [
        call("find_order", number="7"),
        call("transfer_to_billing"),
        call("refund", number="7", amount=80),
        call("transfer_to_support"),
        say("You get 80 euros back."),
    ]
    async with run_agent(AGENTS, agent="support", script=script, message="Refund order 7.") as run:
        assert run.waiting_for("refund")
        await run.approve()
        assert run.calls[2].result == "Refunded 80 for order 7."
        assert run.response == "You get 80 euros back."


def test_a_refund_above_the_price_fails() -> None:
    asyncio.run(_refund_above_the_price_fails())


async def _refund_above_the_price_fails() -> None:
    script = [call("refund", number="8", amount=26), say("That was too much.")]
    async with run_agent(AGENTS, agent="billing", script=script) as run:
        await run.approve()
        assert "[too_much]" in (run.calls[0].result or "")
