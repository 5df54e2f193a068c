"""Memory across runs: it outlives processes, other replicas know it, and what a person erases stays erased."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.conditions import eventually
from tests.support.crash_points import FAST_TAKEOVER
from tests.support.servers import serving
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

AGENTS = """
[models.script]
provider = "scripted"
script = "plain"

[tools]
modules = ["memory_tools"]

[agents.helper]
model = "script"
tools = ["save_and_stall"]

[agents.helper.plugins.memory]
"""
TOOLS = '''
import asyncio

from holdfast import ToolContext, tool


@tool(effect="idempotent")
async def save_and_stall(ctx: ToolContext) -> str:
    """Save, and at the first attempt never return."""
    await ctx.memory.set("plan", "Move to Kyoto.")
    if ctx.run.attempt == 1:
        await asyncio.Event().wait()
    return "saved"
'''


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("memory")
    (folder / "memory_tools.py").write_text(TOOLS)
    (folder / "agents.toml").write_text(AGENTS)
    return folder / "agents.toml"


async def ask(client: Client, prompt: str) -> tuple[dict[str, Any], str]:
    """A run on a thread of its own, and the result of its first call."""
    run = await client.ended((await client.start("helper", prompt))["id"])
    messages = (await client.get(f"/v1/threads/{run['thread_id']}/messages"))["items"]
    [result, *_] = [one for one in messages if one["role"] == "tool"]
    return run, str(result["content"])


async def test_what_one_process_saved_another_one_recalls_until_a_person_erases_it(
    database_url: str, agents: Path
) -> None:
    async with serving(database_url, agents=agents, **FAST_TAKEOVER) as first:
        async with first.client() as client:
            saved, _ = await ask(
                client, 'CALL memory_save {"key": "colour", "text": "Ann likes green."}'
            )
        first.kill()
        await first.gone()
    async with (
        serving(database_url, agents=agents, **FAST_TAKEOVER) as second,
        second.client() as client,
    ):
        recalled, found = await ask(client, 'CALL memory_search {"query": "likes which colour"}')
        assert recalled["thread_id"] != saved["thread_id"]
        assert "Ann likes green." in found
        memory = await client.get("/v1/memories/colour")
        assert (memory["agent_id"], memory["run_id"]) == ("helper", saved["id"])
        erased = await client.http.delete("/v1/memories", params={"scope": "own"})
        assert erased.json() == {"deleted": 1}
        _, nothing = await ask(client, 'CALL memory_search {"query": "likes which colour"}')
        assert "green" not in nothing


async def test_a_call_that_is_repeated_after_a_kill_does_not_revive_an_erased_memory(
    database_url: str, agents: Path
) -> None:
    async with (
        serving(database_url, agents=agents, role="api", **FAST_TAKEOVER) as api,
        api.client() as client,
    ):
        async with serving(database_url, agents=agents, **FAST_TAKEOVER) as first:
            async with first.client() as starter:
                run = await starter.start("helper", "CALL save_and_stall {}")

            async def is_saved() -> bool:
                return (await client.http.get("/v1/memories/plan")).status_code == 200

            await eventually(is_saved)
            assert (await client.http.delete("/v1/memories/plan")).status_code == 204
            first.kill()
            await first.gone()
        async with serving(database_url, agents=agents, **FAST_TAKEOVER):
            ended = await client.ended(run["id"])
        assert ended["outcome"] == "succeeded"
        assert ended["attempt"] == 2
        assert (await client.get("/v1/memories"))["items"] == []
