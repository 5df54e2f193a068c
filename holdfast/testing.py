"""The public Python API: agents in tests, without a server, a database or a network.

The model plays a script; everything else is real: the loop, the tools and plugins of the agents file, the
approval gate, hand-offs and state. The test plays the person who decides:

    from holdfast.testing import call, run_agent, say

    async def test_a_refund_waits_for_approval() -> None:
        script = [call("refund", number="7", amount=80), say("Done.")]
        async with run_agent("agents.toml", agent="support", script=script) as run:
            assert run.waiting_for("refund")
            await run.approve()
            assert run.response == "Done."

Each item of the script is one answer of the model: text, a call, or a list of them. `run.calls` has the calls with
their results, `run.events` the events as a client's stream would show them, and `run.requests` what the model was
sent. A test runs under any event loop of asyncio; `asyncio.run` will do.
"""

from app.testing.agent_run import AgentRun, OpenTicket, ToolCallMade
from app.testing.run_agent import run_agent
from app.testing.scripts import ScriptEnded, Turn, call, say
from app.testing.tool_files import SavedFile

__all__ = [
    "AgentRun",
    "OpenTicket",
    "SavedFile",
    "ScriptEnded",
    "ToolCallMade",
    "Turn",
    "call",
    "run_agent",
    "say",
]
