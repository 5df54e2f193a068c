"""The health port of a worker: probes, metrics, and what it says while the worker stops."""

import asyncio
import re

import httpx2
import pytest

from tests.journeys.test_cli_processes import AGENTS, LONG, is_one_sentence
from tests.support.commands import holdfast
from tests.support.conditions import eventually
from tests.support.servers import serving, working

pytestmark = pytest.mark.anyio


async def test_a_worker_answers_probes_and_serves_its_own_metrics(database_url: str) -> None:
    async with (
        serving(database_url, agents=AGENTS, role="api") as server,
        working(database_url, agents=AGENTS) as worker,
        server.client() as client,
        httpx2.AsyncClient(base_url=worker.base) as health,
    ):
        ready = (await health.get("/health")).json()
        assert (ready["status"], ready["components"]) == ("healthy", {"database": "ok"})
        assert (await health.head("/health")).status_code == 200
        assert (await health.get("/health/live")).json() == {"status": "alive"}
        run = await client.start("demo", "Hello.")
        assert (await client.settled(run["id"]))["outcome"] == "succeeded"
        line = re.compile(r'^holdfast_runs_finished_total{agent="demo",.*} 1.0$', re.MULTILINE)
        assert line.search((await health.get("/metrics")).text)
        assert not line.search((await client.http.get("/metrics")).text)


async def test_a_worker_serves_nothing_else(database_url: str) -> None:
    async with (
        working(database_url) as worker,
        httpx2.AsyncClient(base_url=worker.base) as health,
    ):
        for path in ("/v1/runs", "/v1/agents", "/docs", "/redoc", "/openapi.json", "/"):
            refused = await health.get(path)
            assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
        assert (await health.post("/health", json={})).status_code == 405


async def test_a_worker_is_draining_until_its_runs_are_handed_over(database_url: str) -> None:
    async with (
        serving(database_url, agents=AGENTS, role="api") as server,
        working(database_url, agents=AGENTS, handover_grace=5) as worker,
        server.client() as client,
        httpx2.AsyncClient(base_url=worker.base) as health,
    ):
        run = await client.start("slow", LONG)
        async with client.events(f"/v1/runs/{run['id']}") as stream:
            await stream.until("text_delta")
            worker.terminate()

            async def is_draining() -> bool:
                answer = await health.get("/health")
                return answer.status_code == 503 and answer.json()["status"] == "draining"

            await eventually(is_draining)
            assert (await health.get("/health/live")).status_code == 200
            async with asyncio.timeout(60):
                assert await worker.gone() == 0
        assert "Traceback" not in worker.log


async def test_a_health_port_that_is_taken_is_named(database_url: str) -> None:
    async with working(database_url) as worker:
        port = worker.base.rpartition(":")[2]
        failed = await holdfast("worker", DATABASE_URL=database_url, HOLDFAST_HEALTH_PORT=port)
        is_one_sentence(failed, f"Port {port} of 127.0.0.1 is in use")
        assert "set HOLDFAST_HEALTH_PORT to another one" in failed.err
    failed = await holdfast("worker", DATABASE_URL=database_url, HOLDFAST_HEALTH_PORT="none")
    is_one_sentence(failed, "HOLDFAST_HEALTH_PORT: Input should be a valid integer")


async def test_a_worker_without_a_health_port_executes_runs_and_stops(database_url: str) -> None:
    async with (
        serving(database_url, agents=AGENTS, role="api") as server,
        working(database_url, agents=AGENTS, health_port="off") as worker,
        server.client() as client,
    ):
        run = await client.start("demo", "Hello.")
        assert (await client.settled(run["id"]))["outcome"] == "succeeded"
        assert "/health" not in worker.log
        worker.terminate()
        assert await worker.gone() == 0


async def test_the_doctor_asks_the_worker_of_this_machine(database_url: str) -> None:
    async with working(database_url, agents=AGENTS) as worker:
        port = worker.base.rpartition(":")[2]
        settings = {"DATABASE_URL": database_url, "HOLDFAST_PORT": "9"}
        done = await holdfast("doctor", **settings, HOLDFAST_HEALTH_PORT=port)
        assert f"ok       worker health: {worker.base} is healthy" in done.out
    done = await holdfast("doctor", **settings, HOLDFAST_HEALTH_PORT=port)
    assert f"ok       worker health: no worker runs at {worker.base}" in done.out
    done = await holdfast("doctor", **settings, HOLDFAST_HEALTH_PORT="off")
    assert "worker health" not in done.out
