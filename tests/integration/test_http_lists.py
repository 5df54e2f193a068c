"""Every list has the same paging, orders and periods, and every page of events the same cursor."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.conditions import eventually
from tests.support.problems import the_problem
from tests.support.servers import Server, serving
from tests.support.streams import Client, start_body

pytestmark = pytest.mark.anyio

AGENTS = Path(__file__).parents[1] / "surface" / "agents" / "agents.toml"
RISKY = 'CALL risky {"what": "it"}'
WITHOUT_TIMES = {
    "/v1/agents",
    "/v1/mcp-servers",
    "/v1/tools",
    "/v1/workers",
    "/v1/runs/{run_id}/artifacts",
}
OLDEST_FIRST = {
    "/v1/agents",
    "/v1/mcp-servers",
    "/v1/tools",
    "/v1/workers",
    "/v1/runs/{run_id}/artifacts",
    "/v1/runs/{run_id}/audit",
    "/v1/threads/{thread_id}/inputs",
    "/v1/threads/{thread_id}/messages",
}
PLAIN_TEXT = {"Content-Type": "text/plain"}
Json = dict[str, Any]


@pytest.fixture(scope="module")
async def server(served_database: str) -> AsyncIterator[Server]:
    async with serving(served_database, agents=AGENTS) as running:
        yield running


@pytest.fixture(scope="module")
async def ids(client: Client) -> Json:
    """Ids of a run and its thread. All lists have at least three items, but that of artifacts."""
    key = "the lists"
    call = 'CALL agent_run_quick {"prompt": "hi"} '
    chief = await client.ended((await client.start("chief", call * 3))["id"])
    for _ in range(3):
        asking = await client.start("quick", RISKY, thread_key=key)
        waiting = await client.settled(asking["id"])
        await client.decide(waiting, "approve", remember="run")
        await client.ended(asking["id"])
    background = await client.start("delegate", "CALL later {} " * 3)
    last = await client.settled((await client.start("quick", RISKY, thread_key=key))["id"])
    for text in ("a", "b", "c"):
        uploaded = await client.http.post("/v1/files", content=text, headers=PLAIN_TEXT)
        assert uploaded.status_code == 201
    for key_of_memory in "abcdef":
        address = f"/v1/memories/{key_of_memory}"
        await client.http.put(address, json={"value": "green"})
        if key_of_memory in "abc":
            assert (await client.http.delete(address)).status_code == 204
    messages = [{"role": "user", "content": text} for text in "abc"]
    await client.post(f"/v1/runs/{last['id']}/inputs", {"messages": messages}, 202)

    async def begun() -> bool:
        tasks = await client.get(f"/v1/runs/{background['id']}/tasks")
        return len(tasks["items"]) == 3

    await eventually(begun)
    return {"chief": chief, "background": background, "last": last}


def addresses(ids: Json) -> dict[str, str]:
    """Of each list, an address with at least three items."""
    thread = ids["last"]["thread_id"]
    return {
        "/v1/agents": "/v1/agents",
        "/v1/files": "/v1/files",
        "/v1/memories": "/v1/memories",
        "/v1/memory-deletions": "/v1/memory-deletions",
        "/v1/rules": "/v1/rules",
        "/v1/run-summaries": "/v1/run-summaries",
        "/v1/runs": "/v1/runs",
        "/v1/runs/{run_id}/artifacts": f"/v1/runs/{ids['chief']['id']}/artifacts",
        "/v1/runs/{run_id}/audit": f"/v1/runs/{ids['chief']['id']}/audit",
        "/v1/runs/{run_id}/children": f"/v1/runs/{ids['chief']['id']}/children",
        "/v1/runs/{run_id}/tasks": f"/v1/runs/{ids['background']['id']}/tasks",
        "/v1/threads": "/v1/threads",
        "/v1/threads/{thread_id}/inputs": f"/v1/threads/{thread}/inputs",
        "/v1/threads/{thread_id}/messages": f"/v1/threads/{thread}/messages",
        "/v1/threads/{thread_id}/runs": f"/v1/threads/{thread}/runs",
        "/v1/tickets": "/v1/tickets",
        "/v1/tools": "/v1/tools",
    }


async def whole(client: Client, path: str, limit: int = 200, **query: Any) -> list[Json]:
    items: list[Json] = []
    page = await client.get(path, limit=limit, **query)
    items += page["items"]
    while page["has_more"]:
        page = await client.get(path, limit=limit, cursor=page["next_cursor"], **query)
        items += page["items"]
    assert page["next_cursor"] is None
    return items


def created_at(item: Json) -> str:
    """When the item was created. A case of an audit begins with its ticket."""
    at: str = item.get("blocked", item)["created_at"]
    return at


async def lists_of(client: Client) -> dict[str, Json]:
    """The parameters of each operation whose answer is a page of a list, by its path.

    Sums are pages, too, but of groups that are made by the request.
    """
    document = await client.get("/openapi.json")
    schemas = document["components"]["schemas"]
    found = {}
    for path, operations in document["paths"].items():
        content = operations.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
        reference = content.get("application/json", {}).get("schema", {}).get("$ref", "")
        shape = schemas.get(reference.rpartition("/")[2], {}).get("properties", {})
        if "next_cursor" in shape and path != "/v1/usage":
            parameters = operations["get"]["parameters"]
            found[path] = {one["name"]: one for one in parameters if one["in"] == "query"}
    return found


async def test_every_list_takes_the_same_parameters(client: Client, ids: Json) -> None:
    lists = await lists_of(client)
    events = {path for path in lists if path.endswith("/events")}
    # Other tests leave out what changes with each heartbeat, and MCP servers, of which the file has one.
    assert lists.keys() - events == {*addresses(ids), "/v1/workers", "/v1/mcp-servers"}
    for path in lists.keys() - events:
        wanted = {"order", "cursor", "limit"}
        if path not in WITHOUT_TIMES:
            wanted |= {"created_after", "created_before"}
        assert lists[path].keys() >= wanted, path
        default = lists[path]["order"]["schema"]["default"]
        assert default == ("asc" if path in OLDEST_FIRST else "desc"), path


async def test_both_orders_have_the_same_items_on_pages_of_any_size(
    client: Client, ids: Json
) -> None:
    for name, path in addresses(ids).items():
        listed = await whole(client, path, order="asc")
        assert len(listed) >= (0 if name.endswith("artifacts") else 3), name
        for limit in (1, 2):
            assert await whole(client, path, limit, order="asc") == listed, name
            assert await whole(client, path, limit, order="desc") == listed[::-1], name
        default = listed if name in OLDEST_FIRST else listed[::-1]
        assert await whole(client, path) == default, name


async def test_lists_are_limited_to_a_period(client: Client, ids: Json) -> None:
    def of(items: list[Json]) -> list[str]:
        return [str(item) for item in items]

    for name, path in addresses(ids).items():
        if name in WITHOUT_TIMES:
            continue
        listed = await whole(client, path, order="asc")
        at = created_at(listed[1])
        earlier = await whole(client, path, 1, order="asc", created_before=at)
        assert of(earlier) == of([item for item in listed if created_at(item) < at]), name
        later = await whole(client, path, 1, order="asc", created_after=at)
        assert of(earlier + later) == of(listed), f"{name}: adjoining periods have each item once"
        assert await whole(client, path, created_after="2100-01-01T00:00:00Z") == [], name


async def test_a_cursor_is_refused_in_the_other_order(client: Client, ids: Json) -> None:
    for name, path in addresses(ids).items():
        page = await client.get(path, limit=1, order="asc")
        if page["has_more"]:
            query = {"cursor": page["next_cursor"], "order": "desc"}
            the_problem(await client.http.get(path, params=query), 400, "cursor_mismatch")
        else:
            assert name.endswith("artifacts")


async def test_an_unknown_order_is_refused(client: Client) -> None:
    response = await client.http.get("/v1/threads", params={"order": "newest"})
    problem = the_problem(response, 422, "invalid_request")
    assert "query.order" in problem["detail"]


async def test_tasks_are_filtered_by_their_status_and_outcome(client: Client, ids: Json) -> None:
    path = addresses(ids)["/v1/runs/{run_id}/tasks"]
    assert len(await whole(client, path, status="running")) == 3
    assert await whole(client, path, status="done") == []
    assert await whole(client, path, outcome="succeeded") == []
    cancelled = (await whole(client, path))[0]["id"]
    await client.post(f"{path}/{cancelled}/cancel")
    assert len(await whole(client, path, status="running")) == 2
    ended = await whole(client, path, status="done") + await whole(
        client, path, outcome="cancelled"
    )
    assert len(ended) == 2
    for found in ended:
        assert (found["id"], found["status"], found["outcome"]) == (cancelled, "done", "cancelled")
    assert await whole(client, path, status="running", outcome="cancelled") == []


async def test_messages_are_read_by_the_range_of_a_run(client: Client, ids: Json) -> None:
    run = ids["last"]
    path = f"/v1/threads/{run['thread_id']}/messages"
    log = await whole(client, path)
    bounds = {**run["input"]["range"], "to_seq": run["output"]["range"]["to_seq"]}
    found = await whole(client, path, **bounds)
    assert found == [message for message in log if message["seq"] >= bounds["from_seq"]]
    assert len(found) == 3
    assert await whole(client, path, to_seq=1) == log[:1]


async def test_consumed_inputs_are_listed_in_both_orders(client: Client) -> None:
    run = await client.settled((await client.start("quick", RISKY))["id"])
    body = {"messages": start_body("quick", "x")["messages"] * 3}
    sent = await client.post(f"/v1/runs/{run['id']}/inputs", body, 202)
    await client.decide(run, "approve")
    for run_id in (run["id"], sent["run_id"]):
        done = await client.ended(run_id)
        assert done["outcome"] == "succeeded", done
    path = f"/v1/threads/{run['thread_id']}/inputs"
    listed = await whole(client, path, status="consumed")
    assert {each["id"] for each in listed} == set(sent["input_ids"])
    assert await whole(client, path, 1, status="consumed", order="desc") == listed[::-1]
    late = "2100-01-01T00:00:00Z"
    assert await whole(client, path, status="consumed", created_after=late) == []


async def test_pages_of_events_are_read_with_the_same_cursor_as_lists(
    client: Client, ids: Json
) -> None:
    lists = await lists_of(client)
    for name in lists:
        assert "after" not in lists[name]
    run = ids["last"]
    for path in (
        f"/v1/runs/{run['id']}/events",
        f"/v1/threads/{run['thread_id']}/events",
        "/v1/tickets/events",
    ):
        first = await client.get(path, limit=2)
        second = await client.get(path, limit=2, cursor=first["next_cursor"])
        both = await client.get(path, limit=4)
        assert first["items"] + second["items"] == both["items"], path
        refused = await client.http.get(path, params={"after": "1"})
        assert "query.after: unknown parameter" in refused.json()["detail"]


async def test_a_filter_has_the_name_of_the_field_that_it_compares(
    client: Client, ids: Json
) -> None:
    """`key` and `thread_key` are one name: of the thread, and of the thread that something belongs to."""
    not_compared = {
        "ids",
        "cursor",
        "sort",
        "limit",
        "order",
        "include",
        "assignee",
        "thread_key",
        "q",
    }
    bounds = {"created_after", "created_before", "expires_before", "from_seq", "to_seq"}
    of_nested = {"outcome", "paused", "termination_code", "waiting_reason", "run_id", "ticket_id"}
    document = await client.get("/openapi.json")
    for path, parameters in (await lists_of(client)).items():
        if path.endswith("/events"):
            continue
        page = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]
        name = page["schema"]["$ref"].rpartition("/")[2]
        item = document["components"]["schemas"][name]["properties"]["items"]["items"]["$ref"]
        fields = document["components"]["schemas"][item.rpartition("/")[2]]["properties"]
        # A file may be in the messages of several threads. The run of a ticket has a root.
        of_owners = {"/v1/files": {"thread_id"}, "/v1/tickets": {"root_run_id"}}.get(path, set())
        compared = parameters.keys() - not_compared - bounds - of_nested - of_owners
        assert compared <= fields.keys(), path
