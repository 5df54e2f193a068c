"""Records over HTTP: pages of lists, threads from creation to deletion, agents and runs."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from tests.support.problems import the_problem
from tests.support.rows import all_rows
from tests.support.servers import Server
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

APPROVAL = 'CALL add {"a": 1, "b": 2} CALL risky {"what": "it"}'
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoredRuns:
    """Runs on two threads, oldest first; the last one waits."""

    runs: list[Record]

    @property
    def thread(self) -> str:
        return str(self.runs[0]["thread_id"])

    @property
    def waiting(self) -> Record:
        return self.runs[-1]


@pytest.fixture(scope="module")
async def world(server: Server) -> StoredRuns:
    thread = str(uuid4())
    async with server.client() as client:
        runs = [
            await client.start("quick", f"run {n}", thread_id=thread, metadata={"n": str(n % 2)})
            for n in range(4)
        ]
        runs += [
            await client.start("talker", "a few words", metadata={"n": "0", "of": {"team": "red"}}),
            await client.start("quick", APPROVAL),
        ]
        return StoredRuns([await client.settled(run["id"]) for run in runs])


@pytest.fixture
async def new_thread(client: Client) -> AsyncIterator[Record]:
    thread = await client.post("/v1/threads", {"title": "Spring cleaning"}, 201)
    yield thread
    await client.http.delete(f"/v1/threads/{thread['id']}")


async def all_pages(client: Client, path: str, **query: Any) -> list[Record]:
    """All items of a list, in pages of two."""
    items: list[Record] = []
    cursor: dict[str, str] = {}
    while True:
        page = await client.get(path, limit=2, **query, **cursor)
        items += page["items"]
        assert page["has_more"] is (page["next_cursor"] is not None)
        if not page["has_more"]:
            assert len(page["items"]) <= 2
            return items
        assert len(page["items"]) == 2
        cursor = {"cursor": page["next_cursor"]}


def ids(runs: list[Record]) -> list[str]:
    return [run["id"] for run in runs]


# --- runs -----------------------------------------------------------------------------------------


async def test_runs_are_listed_newest_first_and_each_once(
    client: Client, world: StoredRuns
) -> None:
    listed = await all_pages(client, "/v1/runs")
    assert ids(listed) == ids(world.runs)[::-1]
    assert listed[1:] == world.runs[-2::-1], "an item of a list equals the single run"


async def test_runs_are_filtered_by_their_properties(client: Client, world: StoredRuns) -> None:
    of_thread, talker = world.runs[:4], world.runs[4]
    half = of_thread[2]["created_at"]
    chosen = {
        "agent_id=talker": [talker],
        "status=waiting": [world.waiting],
        "status=running": [],
        f"waiting_reason={world.waiting['waiting']['reason']}": [world.waiting],
        "waiting_reason=manual_pause": [],
        "paused=true": [],
        "paused=false&agent_id=talker": [talker],
        f"thread_id={world.thread}": of_thread,
        f"thread_id={world.thread}&metadata.n=1": [of_thread[1], of_thread[3]],
        "metadata.n=0": [of_thread[0], of_thread[2], talker],
        "metadata.n=0&agent_id=talker": [talker],
        "metadata.n=7": [],
        "metadata.none=0": [],
        "outcome=succeeded": [run for run in world.runs if run["outcome"] == "succeeded"],
        "outcome=failed": [],
        "termination_code=worker_lost": [],
        f"created_before={half}&agent_id=quick": of_thread[:2],
    }
    for query, runs in chosen.items():
        params = dict(part.split("=") for part in query.split("&"))
        assert ids(await all_pages(client, "/v1/runs", **params)) == ids(runs)[::-1], query
    later = await all_pages(client, "/v1/runs", created_after=half, agent_id="quick")
    assert world.waiting["id"] in ids(later)
    assert ids(later)[-1] == of_thread[2]["id"], "the time itself is included"
    assert not set(ids(later)) & set(ids(of_thread[:2]))


async def test_a_cursor_depends_on_the_filters_and_not_on_their_order(
    client: Client, world: StoredRuns
) -> None:
    query = ["metadata.n=0", "metadata.of=red", "limit=1"]
    for _ in range(2):
        run = await client.start("quick", "hello", metadata={"n": "0", "of": "red"})
        await client.settled(run["id"])
    first = (await client.http.get(f"/v1/runs?{'&'.join(query)}")).json()
    reordered = [*query[::-1], f"cursor={first['next_cursor']}"]
    second = (await client.http.get(f"/v1/runs?{'&'.join(reordered)}")).json()
    assert len({*ids(first["items"]), *ids(second["items"])}) == 2
    for found in (*first["items"], *second["items"]):
        await client.http.delete(f"/v1/threads/{found['thread_id']}")


async def test_a_thread_lists_its_runs(client: Client, world: StoredRuns) -> None:
    path = f"/v1/threads/{world.thread}/runs"
    assert ids(await all_pages(client, path)) == ids(world.runs[:4])[::-1]
    assert await all_pages(client, path, status="waiting") == []


async def test_a_new_run_does_not_shift_later_pages(client: Client, world: StoredRuns) -> None:
    first = await client.get("/v1/runs", limit=2, agent_id="talker", status="done")
    page = await client.get("/v1/runs", limit=1, thread_id=world.thread)
    run = await client.start("quick", "newer", thread_id=str(uuid4()))
    await client.settled(run["id"])
    second_page = await client.get(
        "/v1/runs", limit=50, thread_id=world.thread, cursor=page["next_cursor"]
    )
    assert ids(page["items"] + second_page["items"]) == ids(world.runs[:4])[::-1]
    assert ids(first["items"]) == [world.runs[4]["id"]]
    await client.http.delete(f"/v1/threads/{run['thread_id']}")


async def test_an_unchanged_run_is_answered_with_304(client: Client, world: StoredRuns) -> None:
    path = f"/v1/runs/{world.waiting['id']}"
    first = await client.http.get(path)
    assert first.json() == world.waiting
    again = await client.http.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = await client.http.get(path, headers={"If-None-Match": '"something else"'})
    assert other.status_code == 200


async def test_the_state_of_a_run_is_included_on_request(client: Client, world: StoredRuns) -> None:
    path = f"/v1/runs/{world.runs[0]['id']}"
    assert "state" not in await client.get(path)
    assert (await client.get(path, include="state"))["state"]["revision"] == 1


async def test_a_start_may_wait_until_the_run_suspends_or_ends(client: Client) -> None:
    body = {"agent_id": "quick", "messages": [{"role": "user", "content": APPROVAL}]}
    response = await client.http.post("/v1/runs", json=body, headers={"Prefer": "wait=20"})
    run = response.json()
    assert (response.status_code, run["status"]) == (200, "waiting")
    assert response.headers["location"] == f"/v1/runs/{run['id']}"
    assert run == await client.run(run["id"])
    cancelled = await client.post(f"/v1/runs/{run['id']}/cancel", {"reason": "enough"})
    assert (cancelled["status"], cancelled["outcome"]) == ("done", "cancelled")
    await client.http.delete(f"/v1/threads/{run['thread_id']}")


async def test_a_snapshot_has_the_run_its_log_and_its_tickets(
    client: Client, world: StoredRuns
) -> None:
    run = world.waiting
    snapshot = await client.get(f"/v1/runs/{run['id']}/snapshot")
    events = await client.log(f"/v1/runs/{run['id']}")
    assert snapshot["run"] == run
    ticket = await client.get(f"/v1/tickets/{ticket_of(run)}")
    assert snapshot["tickets"] == [{key: ticket[key] for key in snapshot["tickets"][0]}]
    assert snapshot["last_event_id"] == events[-1]["seq"]
    assert snapshot["open_text"] == ""
    assert snapshot["open_tool_calls"] == []
    log = await client.get(f"/v1/threads/{run['thread_id']}/messages")
    assert snapshot["messages"] == log["items"]


# --- messages -------------------------------------------------------------------------------------


async def test_messages_are_listed_by_their_sequence(client: Client, world: StoredRuns) -> None:
    path = f"/v1/threads/{world.thread}/messages"
    log = await all_pages(client, path)
    assert [message["seq"] for message in log] == list(range(1, 9))
    assert [message["role"] for message in log] == ["user", "assistant"] * 4
    assert await all_pages(client, path, order="desc") == log[::-1]
    assert await all_pages(client, path, from_seq=3, to_seq=5) == log[2:5]
    assert await all_pages(client, path, from_seq=3, to_seq=5, order="desc") == log[2:5][::-1]
    assert await all_pages(client, path, visibility="internal") == []
    written = await all_pages(client, path, run_id=world.runs[1]["id"])
    assert log[3] in written
    assert all(message in log[2:4] for message in written)


# --- tickets --------------------------------------------------------------------------------------


def ticket_of(run: Record) -> str:
    return str(run["waiting"]["tickets"][0]["id"])


async def test_tickets_are_filtered_by_their_kind(client: Client, world: StoredRuns) -> None:
    found = await all_pages(client, "/v1/tickets", status="open")
    assert [ticket["id"] for ticket in found] == [ticket_of(world.waiting)]
    for query in (
        {"tool_name": "risky"},
        {"agent_id": "quick"},
        {"run_id": world.waiting["id"]},
    ):
        assert await all_pages(client, "/v1/tickets", status="open", **query) == found
    for query in (
        {"tool_name": "add"},
        {"agent_id": "talker"},
        {"run_id": world.runs[0]["id"]},
    ):
        assert await all_pages(client, "/v1/tickets", **query) == []
    ticket = await client.get(f"/v1/tickets/{found[0]['id']}")
    assert {key: ticket[key] for key in found[0]} == found[0]
    assert (ticket["tool_name"], ticket["arguments"]) == ("risky", {"what": "it"})
    assert ticket["allowed_actions"] == ["approve", "cancel", "edit", "reject", "respond"]


# --- threads --------------------------------------------------------------------------------------


async def test_a_thread_is_created_read_changed_and_deleted(client: Client) -> None:
    body = {
        "thread_id": str(uuid4()),
        "title": "Spring cleaning",
        "resource_id": "house-7",
        "metadata": {"floor": 2},
    }
    response = await client.http.post("/v1/threads", json=body)
    thread = response.json()
    path = f"/v1/threads/{body['thread_id']}"
    assert (response.status_code, response.headers["location"]) == (201, path)
    shown = thread | {"thread_id": thread["id"]}
    assert {name: shown[name] for name in body} == body
    assert await client.get(path) == thread
    changed = (await client.http.patch(path, json={"title": None, "metadata": {}})).json()
    assert changed == thread | {
        "title": None,
        "metadata": {},
        "updated_at": changed["updated_at"],
    }
    assert await client.get(path) == changed
    removed = await client.http.delete(path)
    assert (removed.status_code, removed.content) == (204, b"")
    the_problem(await client.http.get(path), 404, "thread_not_found")
    the_problem(await client.http.delete(path), 404, "thread_not_found")


async def test_threads_are_listed_newest_first(client: Client, world: StoredRuns) -> None:
    created = [await client.post("/v1/threads", {"resource_id": "pages"}, 201) for _ in range(5)]
    listed = await all_pages(client, "/v1/threads", resource_id="pages")
    assert listed == created[::-1]
    everything = await all_pages(client, "/v1/threads")
    assert [thread["id"] for thread in everything][:5] == [thread["id"] for thread in created[::-1]]
    assert world.thread in [thread["id"] for thread in everything]
    for thread in created:
        await client.http.delete(f"/v1/threads/{thread['id']}")


async def test_an_occupied_thread_is_not_deleted(client: Client, world: StoredRuns) -> None:
    response = await client.http.delete(f"/v1/threads/{world.waiting['thread_id']}")
    problem = the_problem(response, 409, "has_active_run")
    assert problem["active_run_id"] == world.waiting["id"]


async def test_a_thread_with_children_is_not_deleted(client: Client, new_thread: Record) -> None:
    parent = new_thread["id"]
    child = await client.post("/v1/threads", {"parent_thread_id": parent}, 201)
    refused = await client.http.delete(f"/v1/threads/{parent}")
    the_problem(refused, 409, "has_children")
    await client.http.delete(f"/v1/threads/{child['id']}")


async def test_a_deleted_thread_leaves_only_its_event_head_and_its_usage(
    client: Client, new_thread: Record, served_database: str, world: StoredRuns
) -> None:
    path = f"/v1/threads/{new_thread['id']}"
    before = await all_rows(served_database)
    run = await client.start("quick", APPROVAL, thread_id=new_thread["id"])
    waiting = await client.settled(run["id"])
    await client.decide(waiting, "approve")
    async with client.events(f"/v1/runs/{run['id']}", follow=1) as stream:
        received = await stream.rest()
    assert (await client.http.delete(path)).status_code == 204
    the_problem(await client.http.get(f"/v1/runs/{run['id']}"), 404, "run_not_found")
    after = await all_rows(served_database)
    remaining = {name for name in before if len(after[name]) > len(before[name])} - {"pgq.pgqueuer"}
    assert remaining == {"event_heads", "usage"}
    again = await client.start("quick", "hello", thread_id=new_thread["id"])
    page = await client.get(f"/v1/runs/{again['id']}/events", limit=1)
    assert page["items"][0]["seq"] > received[-1]["seq"]


# --- agents ---------------------------------------------------------------------------------------


async def test_agents_are_listed_in_the_order_of_their_file(client: Client) -> None:
    page = await client.get("/v1/agents")
    assert (page["next_cursor"], page["has_more"]) == (None, False)
    assert [agent["id"] for agent in page["items"]] == ["quick", "talker", "planner"]
    quick = page["items"][0]
    details = await client.get("/v1/agents/quick")
    assert {name: details[name] for name in quick} == quick
    assert [tool["name"] for tool in details["tool_details"]] == ["add", "risky"]
    assert quick["version"].startswith("sha256:")
    assert {**quick, "version": ""} == {
        "id": "quick",
        "version": "",
        "model": "script",
        "endpoint": None,
        "capabilities": quick["capabilities"],
        "description": "Makes the calls that it is told to make.",
        "tools": ["add", "risky"],
        "approval": ["risky"],
        "background": [],
        "handoffs": [],
        "delegates": [],
        "max_rounds": 8,
    }
