"""A background task whose worker dies or whose processes all restart: its run gets the result."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from app.domain.children.background_tasks import OUTCOME_UNKNOWN
from tests.support.conditions import Effects, eventually
from tests.support.databases import Databases
from tests.support.event_order import check_run
from tests.support.invariants import broken_invariants
from tests.support.servers import serving, working
from tests.support.streams import Client, types_of

pytestmark = pytest.mark.anyio


@pytest.fixture
async def url(postgres: Databases) -> AsyncIterator[str]:
    async with postgres.fresh() as fresh:
        yield fresh


async def waiting_for_a_task(client: Client, tool: str, effects: Effects) -> dict[str, Any]:
    """A run whose only task is held in its tool."""
    prompt = effects.held(tool)
    started = await client.start("patient", prompt)
    waiting = await client.settled(started["id"])
    assert waiting["status"] == "waiting"
    assert waiting["waiting"]["reason"] == "background_tasks"
    assert waiting["termination"] is None
    await effects.happened()
    return waiting


async def finished(client: Client, run_id: str) -> dict[str, Any]:
    async def done() -> dict[str, Any] | None:
        run = await client.run(run_id)
        return run if run["status"] == "done" else None

    run = await eventually(done)
    emitted = await client.log(f"/v1/runs/{run_id}")
    check_run(emitted)
    assert types_of(emitted).count("run_finish") == types_of(emitted).count("run_start") == 2
    return run


async def only_task(client: Client, run_id: str) -> dict[str, Any]:
    [task] = (await client.get(f"/v1/runs/{run_id}/tasks"))["items"]
    assert isinstance(task, dict)
    return task


@pytest.mark.parametrize("tool", ["look", "send"])
async def test_a_task_reports_its_result_after_a_crash(
    url: str, agents: Path, effects: Effects, tool: str
) -> None:
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(serving(url, agents=agents, role="api"))
        client = await stack.enter_async_context(api.client())
        await stack.enter_async_context(working(url, agents=agents))
        run = await waiting_for_a_task(client, tool, effects)
        assert (await only_task(client, run["id"]))["status"] == "running"
        os.kill(effects.pids[0], signal.SIGKILL)
        effects.release()
        await stack.enter_async_context(working(url, agents=agents))
        run = await finished(client, run["id"])
        task = await only_task(client, run["id"])
    assert run["outcome"] == "succeeded"
    if tool == "look":
        assert (task["outcome"], task["result"], task["attempt"]) == (
            "succeeded",
            "look is done",
            2,
        )
        assert (len(effects.lines), len(set(effects.keys))) == (2, 1)
        assert "look is done" in run["final_output"]
    else:
        assert (task["outcome"], task["error"]) == ("failed", OUTCOME_UNKNOWN)
        assert len(effects.lines) == 1, "the unsafe call was repeated"
        assert OUTCOME_UNKNOWN in run["final_output"]
    assert await broken_invariants(url) == {}


@pytest.mark.parametrize("end", ["kill", "terminate"])
async def test_a_run_that_waits_for_a_task_survives_a_full_restart(
    url: str, agents: Path, effects: Effects, end: str
) -> None:
    async with serving(url, agents=agents) as server, server.client() as client:
        run = await waiting_for_a_task(client, "put", effects)
        getattr(server, end)()
        await server.gone()
    async with serving(url, agents=agents) as server, server.client() as client:
        await effects.happened(2)
        assert (await client.run(run["id"]))["status"] == "waiting"
        effects.release()
        run = await finished(client, run["id"])
    assert "put is done" in run["final_output"]
    assert len(set(effects.keys)) == 1
    assert await broken_invariants(url) == {}


async def test_a_run_continues_after_its_task_is_cancelled(
    url: str, agents: Path, effects: Effects
) -> None:
    async with serving(url, agents=agents) as server, server.client() as client:
        run = await waiting_for_a_task(client, "look", effects)
        path = f"/v1/runs/{run['id']}"
        task = await only_task(client, run["id"])
        async with client.events(path, last_id=None, follow=True) as stream:
            cancelled = await client.post(f"{path}/tasks/{task['id']}/cancel")
            emitted = await stream.rest()
        again = await client.post(f"{path}/tasks/{task['id']}/cancel")
        first = await client.get(f"{path}/tasks", limit=1)
    assert (cancelled["status"], cancelled["outcome"]) == ("done", "cancelled")
    assert again == cancelled
    assert (first["has_more"], first["next_cursor"]) == (False, None)
    assert types_of(emitted)[-1] == "run_finish"
    assert "input_queued" in types_of(emitted)
