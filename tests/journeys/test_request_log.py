"""The access log and the metrics of requests, as a real server writes them."""

import json
import re
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.journeys.test_cli_processes import AGENTS
from tests.support.commands import holdfast
from tests.support.conditions import eventually
from tests.support.servers import Running, Server, serving

pytestmark = pytest.mark.anyio

SECRET = "hunter2-in-a-query"


def requests_in(process: Running) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in process.log.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == "http_request"]


async def logged(process: Running, count: int) -> Sequence[dict[str, Any]]:
    async def are_there() -> bool:
        return len(requests_in(process)) >= count

    await eventually(are_there)
    return requests_in(process)


async def metric(server: Server, sample: str) -> float:
    async with httpx2.AsyncClient(base_url=server.base) as client:
        text = (await client.get("/metrics")).text
    found = re.search(rf"^{re.escape(sample)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


async def test_each_request_has_one_line_without_its_query_and_body(
    database_url: str, tmp_path: Any
) -> None:
    made = await holdfast("keys", "new", "--subject", "alice", "--scope", "admin")
    [key] = re.findall(r"hf_\S+", made.err)
    (tmp_path / "keys.toml").write_text(made.out)
    async with (
        serving(
            database_url, agents=AGENTS, log_json=1, api_keys_file=tmp_path / "keys.toml"
        ) as server,
        server.client(key) as client,
    ):
        run = await client.start("demo", "hunter2-in-a-message")
        await client.settled(run["id"])
        listed = await client.http.get(f"/v1/runs?agent_id={SECRET}")
        missing = await client.http.get(f"/v1/runs/{uuid4()}?{SECRET}=1")
        own = await client.http.get("/v1/agents", headers={"X-Request-Id": "from-a-proxy"})
        assert own.headers["x-request-id"] == "from-a-proxy"
        unusable = await client.http.get("/v1/agents", headers={"X-Request-Id": "x" * 201})
        assert len(unusable.headers["x-request-id"]) == 36
        nowhere = await client.http.get(f"/nowhere/{SECRET}")
        anonymous = await client.http.get("/v1/agents", headers={"Authorization": "Bearer x"})
        lines = {line["request_id"]: line for line in await logged(server, 8)}
        assert len(lines) == len(requests_in(server)), "each request has an id of its own"
        of_list = lines[listed.headers["x-request-id"]]
        assert (of_list["method"], of_list["route"], of_list["status"]) == ("GET", "/v1/runs", 200)
        assert (of_list["tenant"], of_list["subject"]) == ("default", "alice")
        assert 0 < of_list["seconds"] < 60
        assert of_list["level"] == "info"
        assert lines["from-a-proxy"]["route"] == "/v1/agents"
        refused = lines[missing.headers["x-request-id"]]
        assert (refused["route"], refused["status"]) == ("/v1/runs/{run_id}", missing.status_code)
        assert refused["code"] == missing.json()["code"]
        assert missing.json()["trace_id"] == refused["request_id"]
        assert lines[nowhere.headers["x-request-id"]]["route"] == "none"
        unknown = lines[anonymous.headers["x-request-id"]]
        assert (unknown["status"], "subject" in unknown) == (401, False)
        of_run = [line for line in lines.values() if line.get("run_id") == run["id"]]
        assert {line["route"] for line in of_run} >= {"/v1/runs/{run_id}"}
        assert "hunter2" not in server.log


async def test_health_checks_and_scrapes_are_not_logged(database_url: str) -> None:
    async with (
        serving(database_url, agents=AGENTS, log_json=1) as server,
        httpx2.AsyncClient(base_url=server.base) as client,
    ):
        for path in ("/health", "/health/live", "/metrics"):
            assert (await client.get(path)).status_code == 200
        await client.get("/v1/agents")
        [line] = await logged(server, 1)
        assert line["route"] == "/v1/agents"


async def test_requests_are_measured_by_route_method_and_class_of_status(
    database_url: str,
) -> None:
    async with (
        serving(database_url, agents=AGENTS) as server,
        httpx2.AsyncClient(base_url=server.base) as client,
    ):
        for _ in range(3):
            await client.get("/v1/agents")
        assert (await client.get(f"/v1/runs/{uuid4()}")).status_code == 404
        await client.request("PROPFIND", f"/{uuid4()}")
        count = "holdfast_http_request_seconds_count"
        assert await metric(server, f'{count}{{method="GET",route="/v1/agents",status="2xx"}}') == 3
        of_run = '{method="GET",route="/v1/runs/{run_id}",status="4xx"}'
        assert await metric(server, count + of_run) == 1
        assert await metric(server, f'{count}{{method="other",route="none",status="4xx"}}') == 1
        assert await metric(server, "holdfast_http_requests_open") == 0


async def test_a_stream_is_measured_to_its_beginning_and_logged_at_its_end(
    database_url: str,
) -> None:
    async with (
        serving(database_url, agents=AGENTS, log_json=1) as server,
        server.client() as client,
    ):
        run = await client.start("slow", "word " * 400)
        before = len(await logged(server, 1))
        async with client.events(f"/v1/runs/{run['id']}") as stream:
            await stream.until("text_delta")
            route = "/v1/runs/{run_id}/events"
            begun = f'holdfast_http_stream_start_seconds_count{{route="{route}"}}'
            assert await metric(server, begun) == 1
            assert await metric(server, "holdfast_http_requests_open") == 0
            assert await metric(server, "holdfast_streams_open") == 1
            assert len(requests_in(server)) == before
        [line] = (await logged(server, before + 1))[before:]
        assert (line["route"], line["status"], line["run_id"]) == (route, 200, run["id"])
        count = f'holdfast_http_request_seconds_count{{method="GET",route="{route}",status="2xx"}}'
        assert await metric(server, count) == 0
