"""The server's side of the console's measurement: a run with many events, and the streams that consoles follow."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import aiohttp

from bench.clients import Unexpected, start_request

CALLS = 85
"""Calls of a round. A run has at most 16 rounds."""
STREAMS = ("/v1/tickets/events?from=now", "/v1/changes")
"""What a console follows; its tabs share these."""
_STREAM = {"accept": "text/event-stream"}


async def prepared_run(http: aiohttp.ClientSession, base: str, *, rounds: int) -> tuple[str, int]:
    """A run that is done, with `rounds` rounds of calls: its id, and the number of its events."""
    prompt = " ".join([f'CALLS {CALLS} add {{"a": 2, "b": 3}}'] * rounds)
    start = start_request("short", str(uuid4()), prompt) | {"limits": {"steps": rounds + 1}}
    async with http.post(f"{base}/v1/runs", json=start) as response:
        response.raise_for_status()
        run_id = str((await response.json())["id"])
    while True:
        async with http.get(f"{base}/v1/runs/{run_id}?wait=20") as response:
            run = await response.json()
        if run["status"] == "done":
            break
    if run["outcome"] != "succeeded":
        raise Unexpected(f"the run with many events has ended with {run['termination']}")
    async with http.get(f"{base}/v1/runs/{run_id}/snapshot") as response:
        return run_id, int((await response.json())["last_event_id"])


@asynccontextmanager
async def followed_by(base: str, consoles: int) -> AsyncIterator[None]:
    """As many consoles as that are open, each with its streams."""
    opened = asyncio.Semaphore(0)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
    ) as http:

        async def follow(path: str) -> None:
            async with http.get(base + path, headers=_STREAM) as response:
                response.raise_for_status()
                opened.release()
                async for _ in response.content.iter_any():
                    pass

        paths = [path for path in STREAMS for _ in range(consoles)]
        async with asyncio.TaskGroup() as viewers:
            tasks = [viewers.create_task(follow(path)) for path in paths]
            for _ in paths:
                await opened.acquire()
            yield
            for task in tasks:
                task.cancel()
