"""Signed reasoning goes back to its provider, over a suspension, in a new process, on another replica."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.support.recorded_answers import SIGNATURE, WIRES
from tests.support.recorded_provider import RecordedProvider, Refusal, recorded_provider
from tests.support.servers import serving

pytestmark = pytest.mark.anyio

TOOLS = """
from holdfast import tool

@tool(effect="read")
def look(place: str, loud: bool) -> str:
    return f"a key in the {place}"
"""
REFUSAL = Refusal(
    400,
    {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "messages.1.content.0: Invalid `signature` in `thinking` block",
        },
    },
)


@pytest.fixture
async def provider() -> AsyncIterator[RecordedProvider]:
    async with recorded_provider() as running:
        yield running


@pytest.fixture
def agents(tmp_path: Path, provider: RecordedProvider) -> Path:
    """One agent for each wire. A person approves its call."""
    (tmp_path / "house_tools.py").write_text(dedent(TOOLS))
    tables = ['[tools]\nmodules = ["house_tools"]\n']
    for name, wire in WIRES.items():
        tables.append(
            f"""
            [models.{name}]
            provider = "{wire.provider}"
            model = "{wire.model}"
            base_url = "{provider.origin}/{name}{wire.base_path}"
            api_key = "sk-of-a-test"

            [agents.{name}]
            model = "{name}"
            tools = ["look"]
            approval = ["look"]
            """
        )
    file = tmp_path / "agents.toml"
    file.write_text("\n".join(dedent(table) for table in tables))
    return file


async def test_each_provider_gets_its_reasoning_back_after_a_kill(
    shared_database_url: str, agents: Path, provider: RecordedProvider
) -> None:
    for name, wire in WIRES.items():
        provider.plays(name, wire.first, wire.second)
    waiting: dict[str, Any] = {}
    async with serving(shared_database_url, agents=agents) as first, first.client() as client:
        for name in WIRES:
            started = await client.start(name, "Find the key.")
            waiting[name] = await client.settled(started["id"])
            assert waiting[name]["status"] == "waiting"
        first.kill()
        await first.gone()
    async with serving(shared_database_url, agents=agents) as second, second.client() as client:
        for name, wire in WIRES.items():
            run = waiting[name]
            await client.decide(run, "approve")
            assert (await client.ended(run["id"]))["outcome"] == "succeeded"
            before, after = provider.requests(name)
            assert wire.answer_in(after) == wire.golden
            for key in ("system", "tools", "instructions", "systemInstruction", "model"):
                assert json.dumps(before.get(key)) == json.dumps(after.get(key))
        await _only_the_messages_show_it(client, waiting["anthropic"])


async def _only_the_messages_show_it(client: Any, run: dict[str, Any]) -> None:
    path = f"/v1/threads/{run['thread_id']}/messages"
    assert SIGNATURE not in str(await client.get(path))
    assert SIGNATURE not in str(await client.log(f"/v1/runs/{run['id']}"))
    assert SIGNATURE not in str(await client.run(run["id"], include="state,trace"))
    [answer] = [
        message
        for message in (await client.get(path, include="provider_data"))["items"]
        if "provider_data" in message
    ]
    assert [part["type"] for part in answer["provider_data"]["parts"]] == [
        "thinking",
        "thinking",
        "text",
        "call",
    ]
    assert answer["provider_data"]["provider"] == "anthropic"


async def test_refused_reasoning_is_left_out_of_one_more_request(
    shared_database_url: str, agents: Path, provider: RecordedProvider
) -> None:
    wire = WIRES["anthropic"]
    provider.plays("anthropic", wire.first, REFUSAL, wire.first, wire.second)
    async with serving(shared_database_url, agents=agents) as server, server.client() as client:
        run = await client.start("anthropic", "Find the key.")
        for _ in range(2):
            await client.decide(await client.settled(run["id"]), "approve")
        assert (await client.ended(run["id"]))["outcome"] == "succeeded"
        metrics = await client.http.get("/metrics")
    _, refused, repeated, last = provider.requests("anthropic")
    assert refused["messages"][1]["content"] == wire.golden
    assert repeated["messages"][1]["content"] == wire.golden[2:]
    assert last["messages"][1]["content"] == wire.golden[2:], "it was refused already"
    assert last["messages"][3]["content"] == wire.golden, "a newer answer keeps its own"
    count = 'holdfast_provider_data_refused_total{model="claude-sonnet-5-5"} 1.0'
    assert count in metrics.text
