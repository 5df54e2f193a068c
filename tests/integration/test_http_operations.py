"""What operators and their tools read: health, metrics, and the document of the whole surface."""

import json
import os
import re
from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.clock import SystemClock
from app.http.error_codes import CODES
from app.http.errors import PROBLEM
from tests.integration.conftest import AGENTS
from tests.support.conditions import eventually
from tests.support.forwarders import Forwarder, forwarding
from tests.support.problems import the_problem
from tests.support.servers import Server, serving
from tests.support.streams import Client, start_body

pytestmark = pytest.mark.anyio

SNAPSHOT = Path(__file__).parents[1] / "snapshots" / "openapi.json"
MOVED_BY_A_RUN = [
    'holdfast_runs_started_total{agent="quick"}',
    'holdfast_runs_finished_total{agent="quick",termination="natural_end"}',
    'holdfast_activation_seconds_count{agent="quick"}',
    'holdfast_steps_total{agent="quick"}',
    'holdfast_inference_seconds_count{model="script"}',
    'holdfast_tokens_total{kind="input",model="script"}',
    'holdfast_tokens_total{kind="output",model="script"}',
    'holdfast_tool_calls_total{status="succeeded",tool="risky"}',
    'holdfast_decisions_total{action="approve"}',
    "holdfast_queue_delay_seconds_count",
    "holdfast_flush_seconds_count",
    "holdfast_flush_events_count",
    "holdfast_checkpoint_seconds_count",
]
AT_REST = ["holdfast_runs_executing", "holdfast_streams_open"]


@pytest.fixture(scope="module")
async def way_to_the_database(served_database: str) -> AsyncIterator[Forwarder]:
    async with forwarding(served_database) as forwarder:
        yield forwarder


@pytest.fixture(scope="module")
async def server(way_to_the_database: Forwarder) -> AsyncIterator[Server]:
    async with serving(way_to_the_database.url, log_level="debug", agents=AGENTS) as running:
        yield running


async def metrics(client: Client) -> dict[str, float]:
    response = await client.http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    lines = [line for line in response.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def test_a_run_moves_the_metrics(client: Client) -> None:
    async with client.start_stream("talker", "a few words one by one") as talking:
        await talking.until("text_delta")
        behind = {"thread_id": talking.heard[0]["thread_id"]}
        async with client.start_stream("quick", 'CALL risky {"what": "it"}', **behind) as stream:
            await talking.rest()
            await stream.rest()
    run = await client.run(stream.heard[0]["run_id"])
    async with client.events(f"/v1/runs/{run['run_id']}", last_id=stream.last_id) as resumed:
        await client.decide(run, "approve")
        await resumed.rest()

    async def all_moved() -> dict[str, float] | None:
        found = await metrics(client)
        at_rest = all(found[name] == 0 for name in AT_REST)
        return found if at_rest and all(found.get(name) for name in MOVED_BY_A_RUN) else None

    assert (await eventually(all_moved))['holdfast_decisions_total{action="approve"}'] == 1


async def test_the_names_of_clients_tools_are_no_label_values(client: Client) -> None:
    async def called(name: str) -> set[str]:
        """The time series after a call of a frontend tool."""
        tool = {"name": name, "description": "Mine.", "parameters": {"type": "object"}}
        run = await client.start("quick", f"CALL {name} {{}}", frontend_tools=[tool])
        await client.decide(await client.settled(run["run_id"]), "respond", result="done")
        await client.ended(run["run_id"])
        return set(await metrics(client))

    once = await called("choose_color_of_acme")
    assert 'holdfast_tool_calls_total{status="succeeded",tool="frontend"}' in once
    assert not any("acme" in name for name in once)
    assert await called("choose_size_of_acme") == once


async def test_a_process_that_can_serve_is_healthy(client: Client) -> None:
    async def healthy() -> dict[str, Any] | None:
        health: dict[str, Any] = await client.get("/health")
        return health if health["status"] == "healthy" else None

    health = await eventually(healthy)
    since = health["relay"].pop("since")
    assert health == {
        "status": "healthy",
        "components": {"database": "ok"},
        "relay": {"wire": "notify", "state": "connected"},
    }
    assert datetime.fromisoformat(since) <= SystemClock().now()
    assert (await metrics(client))['holdfast_relay_connected{wire="notify"}'] == 1
    assert await client.get("/health/live") == {"status": "alive"}


@pytest.mark.parametrize("path", ["/health", "/health/live"])
async def test_a_probe_may_ask_for_the_head_alone(client: Client, path: str) -> None:
    asked, whole = await client.http.head(path), await client.http.get(path)
    assert (asked.status_code, asked.content) == (200, b"")
    for name in ("content-type", "content-length"):
        assert asked.headers[name] == whole.headers[name]


async def test_a_database_that_is_away_is_said_and_survived(
    client: Client, server: Server, way_to_the_database: Forwarder
) -> None:
    await way_to_the_database.block()
    health = await client.http.get("/health")
    assert health.status_code == 503
    assert health.json()["status"] == "unhealthy"
    assert (await client.http.head("/health")).status_code == 503
    assert await client.get("/health/live") == {"status": "alive"}
    for response in (
        await client.http.get("/v1/runs"),
        await client.http.post("/v1/runs", json=start_body("quick", "hello")),
    ):
        the_problem(response, 503, "database_unavailable")
        assert response.headers["retry-after"] == "1"
    for missed in ("heartbeat_missed", "sweep_missed", "queue_restarted", "relay_is_away"):
        await server.printed(re.compile(missed))
    await way_to_the_database.open()

    async def recovered() -> bool:
        return (await client.http.get("/health")).status_code == 200

    await eventually(recovered)
    run = await client.start("quick", "hello again")
    assert (await client.settled(run["run_id"]))["outcome"] == "succeeded"


async def test_a_process_that_does_not_hear_the_others_serves_all_the_same(
    served_database: str,
) -> None:
    async with (
        forwarding(served_database) as way,
        serving(served_database, listen_url=way.url, agents=AGENTS) as running,
        running.client() as client,
    ):

        async def standing(status: str) -> dict[str, Any] | None:
            answer = await client.http.get("/health")
            assert answer.status_code == 200
            health: dict[str, Any] = answer.json()
            return health if health["status"] == status else None

        before = await eventually(partial(standing, "healthy"))
        await way.block()
        away = await eventually(partial(standing, "degraded"))
        assert away["components"] == {"database": "ok"}
        assert (away["relay"]["wire"], away["relay"]["state"]) == ("notify", "away")
        assert away["relay"]["since"] > before["relay"]["since"]
        assert (await metrics(client))['holdfast_relay_connected{wire="notify"}'] == 0
        run = await client.start("quick", "hello")
        assert (await client.settled(run["run_id"]))["outcome"] == "succeeded"
        await way.open()
        back = await eventually(partial(standing, "healthy"))
        assert back["relay"]["since"] > away["relay"]["since"]


async def test_the_surface_is_the_one_that_was_agreed(client: Client) -> None:
    """Renew the snapshot with HOLDFAST_RENEW_SNAPSHOTS=1, and look at what has changed."""
    document = await client.get("/openapi.json")
    text = json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    if os.environ.get("HOLDFAST_RENEW_SNAPSHOTS"):
        SNAPSHOT.write_text(text)
    assert text == SNAPSHOT.read_text()


async def test_every_refusal_is_documented_as_a_problem_with_its_codes(client: Client) -> None:
    document = await client.get("/openapi.json")
    problem = {"$ref": "#/components/schemas/Problem"}
    for path, operations in document["paths"].items():
        for operation in operations.values() if path.startswith("/v1/") else ():
            refusals = {s: r for s, r in operation["responses"].items() if s >= "400"}
            assert refusals.keys() >= {"401", "403", "422"}
            assert "404" in refusals or "{" not in path
            named = {parameter["name"] for parameter in operation.get("parameters", ())}
            assert "400" in refusals or named.isdisjoint({"cursor", "after"})
            for status, refusal in refusals.items():
                assert PROBLEM in refusal["content"], f"{path}: name the codes with refusals(…)"
                shape = refusal["content"][PROBLEM]["schema"]
                assert shape["allOf"][0] == problem
                codes = shape["allOf"][1]["properties"]["code"]["enum"]
                assert {CODES[code][0] for code in codes} == {int(status)}


async def test_a_server_without_keys_asks_for_none(client: Client) -> None:
    document = await client.get("/openapi.json")
    assert document["components"]["securitySchemes"]["api_key"]["scheme"] == "bearer"
    for path, operations in document["paths"].items():
        for operation in operations.values():
            # Nothing declared opens to everybody; so does `{}` in the list of what is.
            assert {} in operation.get("security", [{}])
            assert path.startswith("/v1/") is ("security" in operation)


async def test_every_body_comes_with_an_example(client: Client) -> None:
    document = await client.get("/openapi.json")
    schemas = document["components"]["schemas"]
    for name in ("StartIn", "DecisionsIn", "ThreadIn"):
        [example, *_] = schemas[name]["examples"]
        assert example.keys() <= schemas[name]["properties"].keys()
