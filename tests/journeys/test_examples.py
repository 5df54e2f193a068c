"""The examples work against a real server."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.commands import OURS
from tests.support.servers import Server, serving
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
async def demo(shared_database_url: str) -> AsyncIterator[Server]:
    """A server with the demo agent."""
    async with serving(shared_database_url) as running:
        yield running


async def _approve(server: Server, answers: str) -> str:
    """What the example prints when a person types these lines."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        EXAMPLES / "approve_over_http.py",
        "delete",
        "/tmp/todo.txt",
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith(OURS)},
            "HOLDFAST_URL": server.base,
        },
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(80):
        out, _ = await process.communicate(answers.encode())
    assert process.returncode == 0, out.decode()
    return out.decode()


async def test_a_person_approves_over_http(demo: Server) -> None:
    out = await _approve(demo, "y\n")
    assert "delete_file {'path': '/tmp/todo.txt'}" in out
    assert "Deleted /tmp/todo.txt" in out


async def test_a_person_rejects_over_http(demo: Server) -> None:
    out = await _approve(demo, "n\nstill needed\n")
    assert "Denied: still needed" in out


async def test_the_page_can_follow_a_run_with_a_stream_token(demo: Server) -> None:
    """The addresses that `web_page/index.html` opens; a browser runs it in the system tier."""
    page = (EXAMPLES / "web_page" / "index.html").read_text()
    assert "`/v1/runs/${encodeURIComponent(run)}/events?stream_token=" in page
    assert "`/v1/runs/${encodeURIComponent(run)}/snapshot?stream_token=" in page
    async with demo.client() as client:
        run_id = (await client.start("demo", "hello"))["id"]
        token = (await client.post("/v1/stream-tokens", {"run_id": run_id}, 201))["token"]
        async with Client(demo.base) as visitor:
            async with visitor.events(f"/v1/runs/{run_id}", stream_token=token) as stream:
                received = await stream.rest()
            snapshot = await visitor.get(f"/v1/runs/{run_id}/snapshot", stream_token=token)
    assert snapshot["run"]["id"] == run_id
    types = {event["event_type"] for event in received}
    assert {"run_start", "step_start", "text_delta", "run_finish"} <= types
