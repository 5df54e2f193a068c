"""An outage of the database as clients see it: refusals, `/health`, and recovery."""

import asyncio
from typing import Any

import httpx2

from tests.support.conditions import eventually
from tests.support.streams import Client

OUTAGE_TIMEOUT_SECONDS = 30.0


def refused(answer: httpx2.Response, *reasons: str) -> str:
    """Assert a 503 with Retry-After; returns its code."""
    assert answer.status_code == 503, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert int(answer.headers["retry-after"]) in (1, 5)
    problem = answer.json()
    assert problem["retryable"] is True
    assert not reasons or problem["reason"] in reasons, problem
    assert problem["code"] in ("database_unavailable", "overloaded")
    return str(problem["code"])


def answer_to(run: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The path and the body that approve the first ticket of a waiting run."""
    ticket = run["waiting"]["tickets"][0]["id"]
    path = f"/v1/runs/{run['id']}/decisions"
    return path, {"decisions": [{"ticket_id": ticket, "action": "approve"}]}


async def ready(client: Client) -> None:
    async def check() -> bool:
        return await _health(client) == (200, "ok")

    async with asyncio.timeout(OUTAGE_TIMEOUT_SECONDS):
        await eventually(check)


async def unready(client: Client, *reasons: str) -> None:
    """Wait until readiness fails with a reason; liveness stays 200."""

    async def check() -> bool:
        status, reason = await _health(client)
        return status == 503 and reason in reasons

    async with asyncio.timeout(OUTAGE_TIMEOUT_SECONDS):
        await eventually(check)
    assert (await client.http.get("/health/live")).status_code == 200


async def _health(client: Client) -> tuple[int, str]:
    answer = await client.http.get("/health")
    return answer.status_code, answer.json()["components"]["database"]
