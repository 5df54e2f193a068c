"""What operators and their tools read: health, metrics and the OpenAPI document."""

import json
import os
import re
from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.api.event_streams import EVENT_TYPES
from app.clock import SystemClock
from app.http.error_codes import CODES
from app.http.errors import PROBLEM
from app.storage.schema_revision import newest_revision
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
    'holdfast_tool_calls_total{outcome="succeeded",tool="risky"}',
    'holdfast_decisions_total{action="approve"}',
    "holdfast_queue_delay_seconds_count",
    "holdfast_flush_seconds_count",
    "holdfast_flush_events_count",
    "holdfast_checkpoint_seconds_count",
]
VERBS = (
    "accept|cancel|change|count|create|decide|delete|download|explain|export|fork|get|list|pause|restart|resume|"
    "retract|retry|revoke|save|send|start|upload"
)
SUSPENDED = ["holdfast_runs_executing", "holdfast_streams_open"]


@pytest.fixture(scope="module")
async def forwarder(served_database: str) -> AsyncIterator[Forwarder]:
    async with forwarding(served_database) as forwarder:
        yield forwarder


@pytest.fixture(scope="module")
async def server(forwarder: Forwarder) -> AsyncIterator[Server]:
    async with serving(forwarder.url, log_level="debug", agents=AGENTS) as running:
        yield running


async def metrics(client: Client) -> dict[str, float]:
    response = await client.http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    lines = [line for line in response.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def test_a_run_moves_the_metrics(client: Client) -> None:
    async with client.start_stream("talker", "a few words one by one") as first_stream:
        await first_stream.until("text_delta")
        same_thread = {"thread_id": first_stream.received[0]["thread_id"]}
        async with client.start_stream(
            "quick", 'CALL risky {"what": "it"}', **same_thread
        ) as stream:
            await first_stream.rest()
            await stream.rest()
    run = await client.run(stream.received[0]["run_id"])
    async with client.events(f"/v1/runs/{run['id']}", last_id=stream.last_id) as resumed:
        await client.decide(run, "approve")
        await resumed.rest()

    async def all_moved() -> dict[str, float] | None:
        found = await metrics(client)
        is_suspended = all(found[name] == 0 for name in SUSPENDED)
        return found if is_suspended and all(found.get(name) for name in MOVED_BY_A_RUN) else None

    assert (await eventually(all_moved))['holdfast_decisions_total{action="approve"}'] == 1


async def test_names_of_frontend_tools_are_not_metric_labels(client: Client) -> None:
    async def called(name: str) -> set[str]:
        """The time series after a call of a frontend tool."""
        tool = {"name": name, "description": "Mine.", "parameters": {"type": "object"}}
        run = await client.start("quick", f"CALL {name} {{}}", frontend_tools=[tool])
        await client.decide(await client.settled(run["id"]), "respond", result="done")
        await client.ended(run["id"])
        return set(await metrics(client))

    series = await called("choose_color_of_acme")
    assert 'holdfast_tool_calls_total{outcome="succeeded",tool="frontend"}' in series
    assert not any("acme" in name for name in series)
    assert await called("choose_size_of_acme") == series


async def test_a_process_that_can_serve_is_healthy(client: Client) -> None:
    async def healthy() -> dict[str, Any] | None:
        health: dict[str, Any] = await client.get("/health")
        return health if health["status"] == "healthy" else None

    health = await eventually(healthy)
    since = health["relay"].pop("since")
    assert health == {
        "status": "healthy",
        "components": {"database": "ok"},
        "database_schema": {
            "revision": newest_revision(),
            "expected": newest_revision(),
            "status": "current",
        },
        "relay": {"transport": "notify", "status": "connected"},
    }
    assert datetime.fromisoformat(since) <= SystemClock().now()
    assert (await metrics(client))['holdfast_relay_connected{transport="notify"}'] == 1
    assert await client.get("/health/live") == {"status": "alive"}


@pytest.mark.parametrize("path", ["/health", "/health/live"])
async def test_health_routes_answer_head_requests(client: Client, path: str) -> None:
    asked, whole = await client.http.head(path), await client.http.get(path)
    assert (asked.status_code, asked.content) == (200, b"")
    for name in ("content-type", "content-length"):
        assert asked.headers[name] == whole.headers[name]


async def test_health_reports_a_database_outage_and_the_process_survives_it(
    client: Client, server: Server, forwarder: Forwarder
) -> None:
    await forwarder.block()
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
    for missed in ("heartbeat_missed", "sweep_failed", "queue_restarted", "relay_disconnected"):
        await server.printed(re.compile(missed))
    await forwarder.open()

    async def is_healthy() -> bool:
        return (await client.http.get("/health")).status_code == 200

    await eventually(is_healthy)
    run = await client.start("quick", "hello again")
    assert (await client.settled(run["id"]))["outcome"] == "succeeded"


async def test_a_process_without_its_relay_is_degraded_and_serves_requests(
    served_database: str,
) -> None:
    async with (
        forwarding(served_database) as relay_forwarder,
        serving(served_database, listen_url=relay_forwarder.url, agents=AGENTS) as running,
        running.client() as client,
    ):

        async def health_when(status: str) -> dict[str, Any] | None:
            answer = await client.http.get("/health")
            assert answer.status_code == 200
            health: dict[str, Any] = answer.json()
            return health if health["status"] == status else None

        before = await eventually(partial(health_when, "healthy"))
        await relay_forwarder.block()
        away = await eventually(partial(health_when, "degraded"))
        assert away["components"] == {"database": "ok"}
        assert (away["relay"]["transport"], away["relay"]["status"]) == ("notify", "disconnected")
        assert away["relay"]["since"] > before["relay"]["since"]
        assert (await metrics(client))['holdfast_relay_connected{transport="notify"}'] == 0
        run = await client.start("quick", "hello")
        assert (await client.settled(run["id"]))["outcome"] == "succeeded"
        await relay_forwarder.open()
        back = await eventually(partial(health_when, "healthy"))
        assert back["relay"]["since"] > away["relay"]["since"]


async def test_the_openapi_document_equals_its_snapshot(client: Client) -> None:
    """Renew the snapshot with HOLDFAST_RENEW_SNAPSHOTS=1, and review its diff."""
    document = await client.get("/openapi.json")
    text = json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    if os.environ.get("HOLDFAST_RENEW_SNAPSHOTS"):
        SNAPSHOT.write_text(text)
    assert text == SNAPSHOT.read_text()


async def test_every_operation_schema_and_parameter_is_described(client: Client) -> None:
    document = await client.get("/openapi.json")
    schemas = document["components"]["schemas"]
    assert [name for name in schemas if not re.fullmatch(r"[A-Z][A-Za-z0-9]+", name)] == []
    for name, schema in schemas.items():
        for key, described in schema.get("properties", {}).items():
            assert described.get("description"), f"{name}.{key}"
            if key.endswith("_at"):
                assert "date-time" in json.dumps(described), f"{name}.{key}"
    ids, tags = [], set()
    for operations in document["paths"].values():
        for operation in operations.values():
            ids.append(operation["operationId"])
            [tag] = operation["tags"]
            tags.add(tag)
            assert operation["description"], ids[-1]
            for parameter in operation.get("parameters", ()):
                assert parameter.get("description"), f"{ids[-1]}: {parameter['name']}"
            if "application/json" in operation.get("requestBody", {}).get("content", {}):
                assert "examples" in body_schema(operation, schemas), ids[-1]
    assert len(set(ids)) == len(ids)
    assert [one for one in ids if not re.fullmatch(rf"({VERBS})([A-Z][a-z]+)+", one)] == []
    assert [one["name"] for one in document["tags"]] == sorted(tags)
    assert {"startRun", "listTickets", "decideTickets", "pauseRun", "sendSignal"} <= set(ids)


def body_schema(operation: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """The schema of a JSON body, which may be optional."""
    found = operation["requestBody"]["content"]["application/json"]["schema"]
    [reference] = re.findall(r'"#/components/schemas/(\w+)"', json.dumps(found))
    schema: dict[str, Any] = schemas[reference]
    return schema


async def test_the_openapi_document_has_every_event_type(client: Client) -> None:
    schemas = (await client.get("/openapi.json"))["components"]["schemas"]
    union = schemas["AgentEvent"]
    mapping = union["discriminator"]["mapping"]
    assert mapping.keys() == EVENT_TYPES
    assert sorted(mapping.values()) == sorted(one["$ref"] for one in union["oneOf"])
    for event_type, reference in mapping.items():
        event = schemas[reference.rpartition("/")[2]]
        assert event["properties"]["event_type"]["const"] == event_type
        assert {"seq", "ts", "thread_id", "run_id", "event_type"} <= event["properties"].keys()
        assert "event_type" in event["required"]


async def test_every_refusal_is_documented_as_a_problem_with_its_codes(client: Client) -> None:
    document = await client.get("/openapi.json")
    problem = {"$ref": "#/components/schemas/Problem"}
    for path, operations in document["paths"].items():
        for method, operation in operations.items() if path.startswith("/v1/") else ():
            refusals = {s: r for s, r in operation["responses"].items() if s >= "400"}
            assert refusals.keys() >= {"401", "403", "422"}
            # A PUT creates what its path names.
            assert "404" in refusals or "{" not in path or method == "put"
            named = {parameter["name"] for parameter in operation.get("parameters", ())}
            assert "400" in refusals or "cursor" not in named
            for status, refusal in refusals.items():
                assert PROBLEM in refusal["content"], (
                    f"{path}: name the codes with error_responses(…)"
                )
                shape = refusal["content"][PROBLEM]["schema"]
                assert shape["allOf"][0] == problem
                codes = shape["allOf"][1]["properties"]["code"]["enum"]
                assert {CODES[code][0] for code in codes} == {int(status)}


async def test_the_openapi_document_of_a_server_without_keys_requires_none(client: Client) -> None:
    document = await client.get("/openapi.json")
    assert document["components"]["securitySchemes"]["api_key"]["scheme"] == "bearer"
    for path, operations in document["paths"].items():
        for operation in operations.values():
            # An operation without `security`, or with `{}` in it, needs no key.
            assert {} in operation.get("security", [{}])
            assert path.startswith("/v1/") is ("security" in operation)


async def test_every_request_body_has_an_example(client: Client) -> None:
    document = await client.get("/openapi.json")
    schemas = document["components"]["schemas"]
    for name in ("StartRequest", "DecisionsRequest", "ThreadRequest"):
        [example, *_] = schemas[name]["examples"]
        assert example.keys() <= schemas[name]["properties"].keys()
