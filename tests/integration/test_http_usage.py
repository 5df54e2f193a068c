"""Usage over HTTP: of a run, of a thread, and of a period by group."""

import base64
import json
from typing import Any

import pytest

from app.clock import new_id
from tests.support.problems import the_problem
from tests.support.streams import Client, start_body

pytestmark = pytest.mark.anyio


async def test_a_run_and_its_thread_show_their_usage_by_model(client: Client) -> None:
    started = await client.start("quick", "hello")
    run = await client.settled(started["id"])
    assert "usage_by_model" not in run
    read = await client.run(run["id"], include="usage")
    [usage] = read["usage_by_model"]
    assert usage["requests"] == 1
    assert usage["input_tokens"] == read["input_tokens"]
    assert usage["output_tokens"] == read["output_tokens"]
    assert (usage["cost_usd"], usage["unpriced_requests"]) == (None, 1)
    thread = await client.get(f"/v1/threads/{run['thread_id']}/usage")
    assert thread == {"thread_id": run["thread_id"], "usage_by_model": [usage]}


async def test_usage_is_paged_and_stays_when_its_thread_is_deleted(client: Client) -> None:
    runs = [await client.settled((await client.start("quick", "hi"))["id"]) for _ in range(3)]
    deleted = await client.http.delete(f"/v1/threads/{runs[0]['thread_id']}")
    assert deleted.status_code == 204
    wanted = {run["thread_id"] for run in runs}
    seen: dict[str, Any] = {}
    cursor = None
    while True:
        query = {"group_by": "thread,day", "limit": "2", **({"cursor": cursor} if cursor else {})}
        page = (await client.http.get("/v1/usage", params=query)).json()
        seen |= {item["group"]["thread"]: item for item in page["items"]}
        cursor = page["next_cursor"]
        if not page["has_more"]:
            break
    assert wanted <= seen.keys()
    assert all(set(item["group"]) == {"thread", "day"} for item in seen.values())


@pytest.mark.parametrize(
    "query",
    [
        {"group_by": "colour"},
        {"group_by": ","},
        {"from": "yesterday"},
        {"to": "12"},
        {"limit": "0"},
        {"thread_id": "x"},
        {"group": "model"},
        {"model": "a\0b"},
    ],
    ids=str,
)
async def test_a_wrong_query_is_refused(client: Client, query: dict[str, str]) -> None:
    the_problem(await client.http.get("/v1/usage", params=query), 422, "invalid_request")


@pytest.mark.parametrize("cursor", ["", "x", "e30", "eyJxIjoieCJ9"])
async def test_a_wrong_cursor_is_refused(client: Client, cursor: str) -> None:
    response = await client.http.get("/v1/usage", params={"cursor": cursor})
    assert response.status_code == 400
    assert response.json()["code"] in ("cursor_invalid", "cursor_mismatch")


async def test_a_cursor_whose_thread_is_no_id_is_refused(client: Client) -> None:
    await client.settled((await client.start("quick", "hi"))["id"])
    await client.settled((await client.start("quick", "hi"))["id"])
    query = {"group_by": "thread", "limit": "1"}
    cursor = (await client.http.get("/v1/usage", params=query)).json()["next_cursor"]
    body = json.loads(base64.urlsafe_b64decode(cursor + "=="))
    changed = base64.urlsafe_b64encode(json.dumps({**body, "texts": ["x"]}).encode()).decode()
    response = await client.http.get("/v1/usage", params={**query, "cursor": changed})
    assert response.status_code == 400
    assert response.json()["code"] == "cursor_invalid"


async def test_a_cost_limit_without_a_price_is_refused_and_starts_nothing(client: Client) -> None:
    thread_id = new_id()
    body = start_body("quick", "hello", thread_id=thread_id, limits={"cost_usd": 1})
    response = await client.http.post("/v1/runs", json=body)
    problem = the_problem(response, 422, "price_unknown")
    assert problem["models"]
    thread = await client.http.get(f"/v1/threads/{thread_id}")
    the_problem(thread, 404, "thread_not_found")
