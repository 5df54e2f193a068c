"""Requests repeated under one idempotency key, through two servers."""

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.support.conditions import Effects, eventually
from tests.support.servers import Server, serving
from tests.support.streams import EVENT_STREAM, WHOLE_LOG, Client, start_body, types_of

pytestmark = pytest.mark.anyio


async def twenty(both: tuple[Client, Client], path: str, body: Any) -> list[httpx2.Response]:
    """Send the request twenty times at once; each is repeated until its key is not in flight."""
    headers = {"Idempotency-Key": str(uuid4())}

    async def ask(client: Client) -> httpx2.Response:
        async def answered() -> httpx2.Response | None:
            response = await client.http.post(path, json=body, headers=headers)
            in_flight = response.status_code == 409
            assert not in_flight or response.json()["code"] == "idempotency_key_in_flight"
            return None if in_flight else response

        return await eventually(answered)

    return await asyncio.gather(*(ask(both[n % 2]) for n in range(20)))


def assert_one_answer(answers: list[httpx2.Response], status: int) -> dict[str, Any]:
    assert {answer.status_code for answer in answers} == {status}
    [body] = {json.dumps(answer.json(), sort_keys=True) for answer in answers}
    replayed = [answer for answer in answers if "idempotency-replayed" in answer.headers]
    assert len(replayed) == 19
    answer: dict[str, Any] = json.loads(body)
    return answer


async def test_twenty_starts_with_one_key_are_one_run(both: tuple[Client, Client]) -> None:
    thread = await both[0].post("/v1/threads", {}, 201)
    body = start_body("quick", "hello", thread_id=thread["id"])
    run = assert_one_answer(await twenty(both, "/v1/runs", body), 202)
    assert (await both[1].settled(run["id"]))["outcome"] == "succeeded"
    log = await both[0].log(f"/v1/threads/{thread['id']}")
    assert types_of(log).count("run_created") == 1


async def test_twenty_decisions_with_one_key_are_one(
    both: tuple[Client, Client], tmp_path: Path
) -> None:
    started = await both[0].start("quick", 'CALL risky {"what": "it"}')
    [ticket] = (await both[1].settled(started["id"]))["waiting"]["tickets"]
    body = {"decisions": [{"ticket_id": ticket["id"], "action": "approve"}]}
    decided = assert_one_answer(
        await twenty(both, f"/v1/runs/{started['id']}/decisions", body), 200
    )
    assert decided["results"][0]["status"] == "accepted"
    await both[0].settled(started["id"])
    log = await both[0].log(f"/v1/runs/{started['id']}")
    assert types_of(log).count("ticket_decided") == 1


async def test_twenty_cancels_with_one_key_are_one(both: tuple[Client, Client]) -> None:
    started = await both[0].start("endless", "talk")
    path = f"/v1/runs/{started['id']}/cancel"
    assert_one_answer(await twenty(both, path, {"reason": "enough"}), 202)
    assert (await both[1].settled(started["id"]))["outcome"] == "cancelled"
    log = await both[0].log(f"/v1/runs/{started['id']}")
    assert types_of(log).count("cancel_requested") == 1


async def test_a_repeated_start_attaches_to_its_run_on_another_server(
    database_url: str, agents: Path, tmp_path: Path
) -> None:
    """The first server dies while it executes the run; the repetition starts no second run."""
    effects = Effects(tmp_path / "effects")
    body = start_body("quick", effects.held("put"))
    headers = {"Idempotency-Key": "mine"}

    async def streamed(server: Server) -> list[str]:
        async with server.client() as client:
            response = await client.http.post(
                "/v1/runs", json=body, headers=headers | EVENT_STREAM, params=WHOLE_LOG
            )
            return [line for line in response.text.splitlines() if line.startswith("id:")]

    async with (
        serving(database_url, agents=agents) as first,
        serving(database_url, agents=agents) as second,
        second.client() as client,
    ):
        lost = asyncio.get_running_loop().create_task(streamed(first))
        await effects.happened()
        first.kill()
        with pytest.raises(httpx2.TransportError):
            await lost
        effects.release()
        ids = await streamed(second)
        page = await client.get("/v1/runs")
        [run] = page["items"]
        assert run["outcome"] == "succeeded"
        assert ids == [f"id: {seq}" for seq in range(1, len(ids) + 1)]
