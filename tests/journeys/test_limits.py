"""A run reaches its limit, and a person raises the limit or rejects that."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.conditions import Effects
from tests.support.event_order import check_run
from tests.support.invariants import broken_invariants
from tests.support.servers import Server, serving

pytestmark = pytest.mark.anyio

ONE_STEP: dict[str, Any] = {"limits": {"steps": 1, "tool_calls": 5}, "on_limit": "ask"}


@pytest.fixture
async def servers(shared_database_url: str, agents: Path) -> AsyncIterator[list[Server]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(serving(shared_database_url, agents=agents))
            for _ in range(2)
        ]


def looking(effects: Effects, *, hold: bool = False) -> str:
    return f"CALL look {json.dumps({'file': str(effects.file), 'hold': hold})}"


async def test_a_raised_limit_survives_a_crash_and_a_rejected_raise_ends_the_run(
    servers: list[Server], shared_database_url: str, tmp_path: Path
) -> None:
    once, held = Effects(tmp_path / "once"), Effects(tmp_path / "held")
    first, second = servers
    async with first.client() as first_client, second.client() as client:
        prompt = f"{looking(once)} {looking(held, hold=True)}"
        started = await first_client.start("quick", prompt, **ONE_STEP)
        assert (started["limits"]["steps"], started["limits"]["on_limit"]) == (1, "ask")
        run = await first_client.settled(started["id"])
        assert (run["status"], run["waiting"]["tickets"][0]["kind"]) == ("waiting", "limit")
        assert (run["used"]["steps"], run["used"]["tool_calls"]) == (1, 1)
        [ticket] = (await client.get("/v1/tickets", status="open"))["items"]
        assert (ticket["kind"], ticket["arguments"]["raise_by"]) == ("limit", 1)
        path = f"/v1/runs/{run['id']}"
        codes = [one["code"] for one in (await client.get(f"{path}/explain"))["reasons"]]
        assert codes == ["limit_reached", "waiting_for_tickets"]
        await first_client.decide(run, "edit", arguments={"raise_by": 5})
        await held.happened()
        first.kill()
        await first.gone()
        held.release()
        done = await client.settled(run["id"])
        assert done["outcome"] == "succeeded"
        assert done["limits"]["steps"] == 6
        assert (done["used"]["steps"], done["used"]["tool_calls"]) == (3, 2)
        # The repeatable call was repeated after the crash; it counts once.
        assert (len(once.lines), len(held.lines)) == (1, 2)
        check_run(await client.log(path))
        [case] = (await client.get(f"{path}/audit"))["items"]
        assert case["blocked"]["kind"] == "limit"
        assert case["decisions"][0]["payload"] == {"raise_by": 5}

        other = await client.start("quick", looking(once), **ONE_STEP)
        waiting = await client.settled(other["id"])
        await client.decide(waiting, "reject", reason="That was enough.")
        done = await client.settled(other["id"])
        assert (done["outcome"], done["termination"]["code"]) == ("budget_exceeded", "limit_steps")
        assert "That was enough." in done["termination"]["detail"]
        retried = await client.post(f"/v1/runs/{other['id']}/retry", {"limits": {"steps": 3}}, 202)
        again = await client.settled(retried["id"])
        assert (again["outcome"], again["limits"]["steps"]) == ("succeeded", 3)
    assert await broken_invariants(shared_database_url) == {}
