"""No request stalls the server: no step of its event loop takes longer than a reference computation.

During one step the event loop serves no other client, so its length is what other clients wait.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from app.clock import yield_to_loop
from app.domain.events.activities import MAX_ACTIVITY_CHANGES
from app.settings import Settings
from app.storage.page_rows import MAX_PAGE_BYTES
from tests.support.conditions import eventually
from tests.support.loop_time import LoopTime, Reply, ask, loop_time, reference, served_here
from tests.support.routes import BODIES, UNKNOWN, Route
from tests.surface import floods
from tests.surface.conftest import AGENTS
from tests.surface.document import LABELS

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

ROUTES = [Route(*label.split(" ")) for label in LABELS if " /v1/" in label]
LARGE = "x" * 900_000
SEVERAL = 6


@dataclass(frozen=True, slots=True)
class Watched:
    """A server on this event loop, and ids of its rows."""

    port: int
    loop: LoopTime
    ids: dict[str, str]

    async def post(self, path: str, body: Any) -> dict[str, Any]:
        reply = await ask(self.port, "POST", path, json.dumps(body).encode())
        assert reply.status in (200, 201, 202), reply.body[:500]
        answer: dict[str, Any] = json.loads(reply.body)
        return answer

    async def get(self, path: str) -> dict[str, Any]:
        reply = await ask(self.port, "GET", path)
        assert reply.status == 200, reply.body[:500]
        answer: dict[str, Any] = json.loads(reply.body)
        return answer

    async def settled(self, run_id: str) -> None:
        async def is_settled() -> bool:
            return (await self.get(f"/v1/runs/{run_id}"))["status"] in ("waiting", "done")

        await eventually(is_settled)

    async def measure(self, request: Callable[[], Awaitable[Reply]]) -> tuple[Reply, float]:
        """The response, and the longest step as a share of the reference. The best of up to five measurements,
        because other work of the process and of the machine must not count."""
        shares = []
        for _ in range(5):
            self.loop.reset()
            reply = await request()
            shares.append(self.loop.longest / self.loop.allowed)
            if shares[-1] < 0.5:
                break
        return reply, min(shares)


@pytest.fixture(scope="module")
async def watched(served_database: str) -> AsyncIterator[Watched]:
    settings = Settings(database_url=served_database, agents=AGENTS, log_level="error")
    with loop_time() as loop:
        async with served_here(settings) as port:
            loop.allowed = min(reference() for _ in range(3))
            ids = dict.fromkeys(
                ("input_id", "ticket_id", "rule_id", "file_id", "server_id", "memory_key"), UNKNOWN
            )
            server = Watched(port, loop, {**ids, "agent_id": "quick"})
            asking = {"role": "user", "content": 'CALL risky {"what": "it"}'}
            run = await server.post("/v1/runs", {"agent_id": "quick", "messages": [asking]})
            await server.settled(run["id"])
            server.ids.update(run_id=run["id"], thread_id=run["thread_id"])
            server.ids.update(task_id=f"bg_{UNKNOWN}", seq="1")
            yield server


async def without_stalls(
    watched: Watched, requests: dict[str, Callable[[], Awaitable[Reply]]]
) -> None:
    """Send each request. None gets a 5xx response, and none takes the loop for too long."""
    too_long = {}
    for what, request in requests.items():
        reply, share = await watched.measure(request)
        assert 200 <= reply.status < 500, (what, reply.body[:500])
        if reply.status >= 400:
            assert len(reply.body) < 20_000, what
        if share > 1:
            too_long[what] = round(share, 2)
    assert not too_long


async def test_the_measurement_finds_a_long_step() -> None:
    """Without this, the other tests here would prove nothing."""
    over = asyncio.Event()

    def long_step() -> None:
        reference()
        reference()
        over.set()

    with loop_time() as loop:
        allowed = reference()
        await yield_to_loop()
        loop.reset()
        asyncio.get_running_loop().call_soon(long_step)
        await over.wait()
        assert loop.longest > 1.5 * allowed


@pytest.mark.parametrize(
    "label", [f"{route.method} {route.path}" for route in ROUTES if route.method != "GET"]
)
async def test_no_body_stalls_the_event_loop(watched: Watched, label: str) -> None:
    route = Route(*label.split(" "))
    path = route.path.format_map(watched.ids)
    headers = {"If-Match": '"1"'} if "input_id" in route.ids else {}
    await without_stalls(
        watched,
        {
            what: lambda body=body: ask(watched.port, route.method, path, body, headers)  # type: ignore[misc]
            for what, body in floods.bodies_of(route)
        },
    )


async def test_no_body_with_an_idempotency_key_stalls_the_event_loop(watched: Watched) -> None:
    path = "/v1/threads"
    good = json.dumps({**BODIES["POST", path], "metadata": 0})[:-2].encode()
    await without_stalls(
        watched,
        {
            what: lambda what=what, value=value: ask(  # type: ignore[misc]
                watched.port, "POST", path, good + value + b"}", {"Idempotency-Key": what}
            )
            for what, value in floods.VALUES.items()
        },
    )


@pytest.mark.parametrize("label", [label for label in LABELS if label.startswith("GET ")])
async def test_no_query_stalls_the_event_loop(watched: Watched, label: str) -> None:
    route = Route(*label.split(" "))
    path = route.path.format_map(watched.ids)
    await without_stalls(
        watched,
        {
            what: lambda query=query: ask(watched.port, "GET", f"{path}?{query}")  # type: ignore[misc]
            for what, query in floods.queries_of(route)
        },
    )


@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
async def test_no_url_path_stalls_the_event_loop(watched: Watched, method: str) -> None:
    await without_stalls(
        watched,
        {
            f"{what} in {route.path}": lambda path=route.path.split("{")[0] + text: ask(  # type: ignore[misc]
                watched.port, method, path
            )
            for route in (ROUTES if method == "GET" else ROUTES[:1])
            for what, text in floods.PATHS.items()
        },
    )


@pytest.mark.parametrize("name", floods.HEADERS)
async def test_no_header_stalls_the_event_loop(watched: Watched, name: str) -> None:
    paths = ("/v1/agents", "/v1/runs/{run_id}", "/v1/runs/{run_id}/events", "/v1/tickets/events")
    requests: dict[str, Callable[[], Awaitable[Reply]]] = {}
    for number, value in enumerate(floods.HEADERS[name]):
        for path in paths:
            requests[f"{number} of GET {path}"] = lambda path=path, value=value: ask(  # type: ignore[misc]
                watched.port, "GET", path.format_map(watched.ids), None, {name: value}
            )
        requests[f"{number} of a POST"] = lambda value=value: ask(  # type: ignore[misc]
            watched.port, "POST", "/v1/threads", b"{}", {name: value}
        )
    await without_stalls(watched, requests)


# --- large and valid requests ---------------------------------------------------------------------


async def pages_of(watched: Watched, path: str) -> list[dict[str, Any]]:
    """All items of a list. Each page must come without a stall, and be bounded."""
    found: list[dict[str, Any]] = []
    joint = "&" if "?" in path else "?"
    cursor = ""
    while True:
        target = f"{path}{joint}limit=200{cursor}"
        reply, share = await watched.measure(lambda: ask(watched.port, "GET", target))  # noqa: B023
        assert reply.status == 200, reply.body[:500]
        assert share < 1
        page = json.loads(reply.body)
        assert page["items"]
        assert len(reply.body) < MAX_PAGE_BYTES + 100_000
        found += page["items"]
        assert (page["next_cursor"] is not None) == page["has_more"]
        if not page["has_more"]:
            return found
        cursor = f"&cursor={page['next_cursor']}"


async def test_a_list_of_large_threads_is_paged_by_bytes(watched: Watched) -> None:
    made = [
        (await watched.post("/v1/threads", {"resource_id": "large", "metadata": {"a": LARGE}}))[
            "id"
        ]
        for _ in range(SEVERAL)
    ]
    small = await watched.post("/v1/threads", {"resource_id": "large"})
    found = await pages_of(watched, "/v1/threads?resource_id=large")
    assert [one["id"] for one in found] == [small["id"], *reversed(made)]


async def test_a_list_of_large_runs_is_paged_by_bytes(watched: Watched) -> None:
    messages = [{"role": "user", "content": "hello"}]
    body = {"agent_id": "quick", "messages": messages, "metadata": {"a": LARGE, "mark": "large"}}
    made = [(await watched.post("/v1/runs", body))["id"] for _ in range(SEVERAL)]
    found = await pages_of(watched, "/v1/runs?metadata.mark=large")
    assert [one["id"] for one in found] == made[::-1]


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_a_log_of_large_messages_is_paged_by_bytes(watched: Watched, order: str) -> None:
    large = [{"role": "user", "content": f"{number} {LARGE}"} for number in range(2)]
    body: dict[str, Any] = {"agent_id": "quick", "messages": large}
    for _ in range(SEVERAL // 2):
        run = await watched.post("/v1/runs", body)
        body["thread_id"] = run["thread_id"]
        await watched.settled(run["id"])
    thread = await watched.get(f"/v1/threads/{run['thread_id']}")
    found = await pages_of(watched, f"/v1/threads/{run['thread_id']}/messages?order={order}")
    seqs = list(range(1, thread["message_count"] + 1))
    assert [one["seq"] for one in found] == (seqs if order == "asc" else seqs[::-1])
    reply, share = await watched.measure(
        lambda: ask(watched.port, "POST", f"/v1/threads/{run['thread_id']}/fork", b"{}")
    )
    assert reply.status == 201
    assert share < 1
    copy = json.loads(reply.body)["id"]
    assert [one["seq"] for one in await pages_of(watched, f"/v1/threads/{copy}/messages")] == seqs


async def test_large_pending_messages_are_paged_and_cancelled(watched: Watched) -> None:
    asking = {"role": "user", "content": 'CALL risky {"what": "it"}'}
    first = await watched.post("/v1/runs", {"agent_id": "quick", "messages": [asking]})
    await watched.settled(first["id"])
    body = {
        "agent_id": "quick",
        "thread_id": first["thread_id"],
        "messages": [{"role": "user", "content": LARGE}],
        "metadata": {"a": LARGE},
    }
    queued = [(await watched.post("/v1/runs", body))["id"] for _ in range(SEVERAL)]
    thread = f"/v1/threads/{first['thread_id']}"
    waiting = await pages_of(watched, f"{thread}/inputs")
    assert [one["run_id"] for one in waiting] == queued
    reply, share = await watched.measure(
        lambda: ask(watched.port, "POST", f"{thread}/cancel", b"{}")
    )
    assert share < 1
    cancelled = await watched.get(f"/v1/threads/{first['thread_id']}/runs?status=done&limit=1")
    assert cancelled["has_more"]


async def test_large_tickets_are_paged_by_bytes(watched: Watched) -> None:
    made = []
    for number in range(SEVERAL):
        call = f"CALL risky {json.dumps({'what': f'{number} {LARGE}'})}"
        run = await watched.post(
            "/v1/runs", {"agent_id": "quick", "messages": [{"role": "user", "content": call}]}
        )
        await watched.settled(run["id"])
        made.append(run["id"])
    tickets = await pages_of(watched, "/v1/tickets?status=open&tool_name=risky")
    assert [one["run_id"] for one in tickets if one["run_id"] in made] == made[::-1]
    runs = await pages_of(watched, "/v1/runs?status=waiting")
    asked = {one["id"]: len(one["waiting"]["tickets"]) for one in runs}
    assert [asked[run_id] for run_id in made] == [1] * SEVERAL


async def test_a_long_log_is_shown_forked_and_continued_without_a_stall(watched: Watched) -> None:
    parts = [{"type": "text", "text": "x"}] * 4
    body: dict[str, Any] = {
        "agent_id": "quick",
        "messages": [{"role": "user", "content": parts}] * 1000,
    }
    for _ in range(3):
        run = await watched.post("/v1/runs", body)
        body["thread_id"] = run["thread_id"]
        await watched.settled(run["id"])
    snapshot, share = await watched.measure(
        lambda: ask(watched.port, "GET", f"/v1/runs/{run['id']}/snapshot")
    )
    assert share < 1
    shown = json.loads(snapshot.body)
    assert len(shown["messages"]) >= 1000
    assert shown["run"]["id"] == run["id"]

    async def continues() -> Reply:
        small = {**body, "messages": [{"role": "user", "content": "x"}]}
        more = await watched.post("/v1/runs", small)
        await watched.settled(more["id"])
        return await ask(watched.port, "POST", f"/v1/threads/{more['thread_id']}/fork", b"{}")

    reply, share = await watched.measure(continues)
    assert reply.status == 201
    assert share < 1


@pytest.mark.parametrize("changes", [2000, 20_000], ids=["shown", "left out"])
async def test_activities_with_very_many_changes_are_shown_without_a_stall(
    watched: Watched, changes: int
) -> None:
    call = f"CALL plan {json.dumps({'width': 20_000, 'changes': changes})}"
    run = await watched.post(
        "/v1/runs", {"agent_id": "planner", "messages": [{"role": "user", "content": call}]}
    )
    await watched.settled(run["id"])
    reply, share = await watched.measure(
        lambda: ask(watched.port, "GET", f"/v1/runs/{run['id']}/snapshot")
    )
    assert share < 1
    assert len(reply.body) < MAX_PAGE_BYTES
    snapshot = json.loads(reply.body)
    assert snapshot["has_more_activities"] == (changes > MAX_ACTIVITY_CHANGES)
    lengths = [len(each["content"]["steps"]) for each in snapshot["activities"]]
    assert lengths == ([] if changes > MAX_ACTIVITY_CHANGES else [20_000 + changes])


async def test_the_openapi_document_is_built_before_the_first_request(watched: Watched) -> None:
    reply, share = await watched.measure(lambda: ask(watched.port, "GET", "/openapi.json"))
    assert reply.status == 200
    assert share < 1
