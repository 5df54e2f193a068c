"""Decisions made at once, decisions whose server dies, and tickets that expire."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.conditions import Effects
from tests.support.event_order import check_run
from tests.support.servers import Server, serving
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

DECIDERS = 50


@pytest.fixture
async def servers(shared_database_url: str, agents: Path) -> AsyncIterator[list[Server]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(serving(shared_database_url, agents=agents))
            for _ in range(2)
        ]


@pytest.fixture
async def both(servers: list[Server]) -> AsyncIterator[list[Client]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(server.client()) for server in servers]


async def waiting(client: Client, *prompts: str, **more: Any) -> dict[str, Any]:
    started = await client.start("guarded", " ".join(prompts), **more)
    return await client.settled(started["id"])


def sending(effects: Effects, *, hold: bool = False) -> str:
    return f'CALL send {{"file": "{effects.file}", "hold": {str(hold).lower()}}}'


async def test_one_of_fifty_decisions_wins_and_the_call_runs_once(
    both: list[Client], tmp_path: Path
) -> None:
    effects = Effects(tmp_path / "effects")
    run = await waiting(both[0], sending(effects))
    [ticket] = run["waiting"]["tickets"]
    path = f"/v1/runs/{run['id']}/decisions"

    async def decide(number: int) -> httpx2.Response:
        action = "approve" if number % 2 else "reject"
        answer = {"ticket_id": ticket["id"], "action": action, "decision_id": f"decider {number}"}
        client = both[number // 2 % 2]
        return await client.http.post(path, json={"decisions": [answer]})

    answers = await asyncio.gather(*map(decide, range(DECIDERS)))
    assert Counter(answer.status_code for answer in answers) == {200: 1, 409: DECIDERS - 1}
    [won] = [answer.json()["results"][0] for answer in answers if answer.status_code == 200]
    lost = [answer.json() for answer in answers if answer.status_code == 409]
    assert {one["code"] for one in lost} == {"ticket_already_decided"}
    assert {one["winner"]["id"] for one in lost} == {won["decision_id"]}
    done = await both[1].settled(run["id"])
    assert done["outcome"] == "succeeded"
    assert len(effects.lines) == (won["action"] == "approve")
    check_run(await both[0].log(f"/v1/runs/{run['id']}"))
    [case] = (await both[0].get(f"/v1/runs/{run['id']}/audit"))["items"]
    decided = [one for one in case["decisions"] if one["effect"] == "decided"]
    assert [one["id"] for one in decided] == [won["decision_id"]]


async def test_a_decision_survives_the_server_that_accepted_it(
    servers: list[Server], both: list[Client], tmp_path: Path
) -> None:
    """The first server is killed right after its answer; the other one applies the decision."""
    effects = Effects(tmp_path / "effects")
    run = await waiting(both[0], sending(effects))
    answer = {"ticket_id": run["waiting"]["tickets"][0]["id"], "action": "reject", "reason": "No."}
    path = f"/v1/runs/{run['id']}/decisions"
    accepted = await both[0].http.post(path, json={"decisions": [answer]})
    servers[0].kill()
    assert accepted.status_code == 200
    done = await both[1].settled(run["id"])
    assert done["outcome"] == "succeeded"
    again = await both[1].post(path, {"decisions": [answer]})
    assert again["results"][0]["status"] == "duplicate"
    [case] = (await both[1].get(f"/v1/runs/{run['id']}/audit"))["items"]
    assert (case["executed"]["outcome"], case["executed"]["result"]) == (
        "rejected",
        {"status": "done", "outcome": "failed", "text": "Denied: No."},
    )
    assert effects.lines == []


async def test_a_ticket_expires_although_its_server_died(
    servers: list[Server], both: list[Client], tmp_path: Path
) -> None:
    policy = {"expires_in": 1.5, "on_expiry": "cancel_run"}
    effects = Effects(tmp_path / "effects")
    run = await waiting(both[0], sending(effects), ticket_policy=policy)
    servers[0].kill()
    [ticket] = run["waiting"]["tickets"]
    assert ticket["on_expiry"] == "cancel_run"
    async with both[1].events(f"/v1/runs/{run['id']}", follow=1) as stream:
        await stream.until("ticket_expired")
        received = await stream.rest()
    assert received[-1]["termination"]["type"] == "cancelled"
    check_run(received)
    response = await both[1].http.post(
        f"/v1/runs/{run['id']}/decisions",
        json={"decisions": [{"ticket_id": ticket["id"], "action": "approve"}]},
    )
    assert (response.status_code, response.json()["code"]) == (410, "ticket_expired")
    assert effects.lines == []
