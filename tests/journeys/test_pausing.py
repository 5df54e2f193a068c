"""A paused run whose worker is killed before the next step: the pause still takes effect."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.conditions import Effects
from tests.support.event_order import check_run
from tests.support.servers import Running, Server, serving, working
from tests.support.streams import Client, types_of

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def server(shared_database_url: str, agents: Path) -> AsyncIterator[Server]:
    """An API server without workers, which runs through all tests."""
    async with serving(shared_database_url, agents=agents, role="api") as running:
        yield running


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def a_worker(stack: AsyncExitStack, database_url: str, agents: Path) -> Running:
    return await stack.enter_async_context(working(database_url, agents=agents))


async def paused(client: Client, run_id: str) -> dict[str, Any]:
    """The run after it is suspended by the pause."""
    run = await client.settled(run_id)
    assert (run["status"], run["waiting"]["reason"]) == ("waiting", "manual_pause")
    return run


async def test_a_pause_survives_a_crash_and_the_takeover(
    client: Client,
    stack: AsyncExitStack,
    shared_database_url: str,
    agents: Path,
    effects: Effects,
) -> None:
    first = await a_worker(stack, shared_database_url, agents)
    started = await client.start("quick", effects.held("look"))
    path = f"/v1/runs/{started['id']}"
    await effects.happened()
    requested = await client.post(f"{path}/pause", {"reason": "look first"}, 202)
    assert requested["status"] == "running"
    assert requested["pause"]["reason"] == "look first"
    first.kill()
    await first.gone()
    effects.release()
    second = await a_worker(stack, shared_database_url, agents)
    run = await paused(client, started["id"])
    assert (run["attempt"], run["pause"]["reason"]) == (2, "look first")
    assert len(effects.lines) == 1, "the call that was cut short isn't rerun before the resume"
    [why] = (await client.get(f"{path}/explain"))["reasons"]
    assert why["code"] == "paused"
    assert "look first" in why["text"]
    [listed] = (await client.get("/v1/runs", thread_id=run["thread_id"]))["items"]
    assert listed["pause"] == run["pause"]
    second.kill()
    await second.gone()
    await a_worker(stack, shared_database_url, agents)
    assert (await client.post(f"{path}/pause"))["attempt"] == 2, "no worker has claimed it"
    assert (await client.post(f"{path}/resume"))["pause"] is None
    done = await client.ended(started["id"])
    assert (done["outcome"], done["attempt"]) == ("succeeded", 3)
    assert len(effects.lines) == 2
    assert len(set(effects.keys)) == 1
    log = await client.log(path)
    check_run(log)
    finishes = [event for event in log if event["event_type"] == "run_finish"]
    assert [finish["termination"]["type"] for finish in finishes] == ["suspended", "natural_end"]
    assert types_of(log).count("run_start") == 2
    assert types_of(log).count("pause_requested") == types_of(log).count("pause_ended") == 1


async def test_a_decision_for_a_paused_run_takes_effect_after_the_resume(
    client: Client,
    stack: AsyncExitStack,
    shared_database_url: str,
    agents: Path,
    effects: Effects,
) -> None:
    worker = await a_worker(stack, shared_database_url, agents)
    started = await client.start("quick", f'CALL risky {{"what": "{effects.file}"}}')
    path = f"/v1/runs/{started['id']}"
    waiting = await client.settled(started["id"])
    assert (await client.post(f"{path}/pause", {}))["waiting"]["reason"] == "tool_permission"
    await client.decide(waiting, "approve")
    worker.kill()
    await worker.gone()
    await a_worker(stack, shared_database_url, agents)
    held = await client.run(started["id"])
    assert (held["status"], held["attempt"]) == ("waiting", 1)
    await client.post(f"{path}/resume")
    done = await client.ended(started["id"])
    assert (done["outcome"], done["attempt"]) == ("succeeded", 2)
    check_run(await client.log(path))
