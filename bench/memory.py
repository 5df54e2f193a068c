"""The memory of suspended runs and idle streams."""

import asyncio

import psutil

from bench.clients import HoldfastClient
from bench.database import Postgres
from bench.table import Line, Mark, count, megabytes

CONCURRENT_READERS = 32
SETTLE = 6.0
"""Seconds; longer than the default heartbeat, so that each stream has sent one."""

SUSPENDED = Mark("< 5 MB", most=5_000_000)
STREAMS = Mark("< 60 MB", most=60_000_000)
CONNECTIONS = Mark("0", most=0)


async def memory(
    ours: HoldfastClient, postgres: Postgres | None, pid: int, *, suspended: int, streams: int
) -> list[Line]:
    """RSS of the server before and after `suspended` runs, then with `streams` idle streams."""
    server = psutil.Process(pid)
    # Let caches, pools and the allocator grow under this load before the first measurement.
    await _suspend(ours, suspended // 10)
    await asyncio.sleep(1)
    before = server.memory_info().rss
    waiting = await _suspend(ours, suspended)
    await asyncio.sleep(1)
    added = server.memory_info().rss - before
    lines = [
        Line(
            f"RSS added by {count(suspended)} suspended runs",
            megabytes(added),
            mark=SUSPENDED,
            judged=added,
        )
    ]
    return lines + await _idle_streams(ours, postgres, server, waiting[:streams])


async def _suspend(ours: HoldfastClient, runs: int) -> list[str]:
    waiting: list[str] = []
    left = iter(range(runs))

    async def one_after_another() -> None:
        for _ in left:
            waiting.append(await ours.suspend())

    async with asyncio.TaskGroup() as clients:
        for _ in range(CONCURRENT_READERS):
            clients.create_task(one_after_another())
    return waiting


async def _idle_streams(
    ours: HoldfastClient, postgres: Postgres | None, server: psutil.Process, waiting: list[str]
) -> list[Line]:
    """Follow runs without events, all at once, for longer than a heartbeat."""
    connections = await postgres.connections() if postgres else 0
    before = server.memory_info().rss
    opened = asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as clients:
        following = []
        for run in waiting:
            following.append(clients.create_task(ours.follow(run, opened.release)))
            if len(following) > CONCURRENT_READERS:
                await opened.acquire()
        for _ in range(min(CONCURRENT_READERS, len(following))):
            await opened.acquire()
        await asyncio.sleep(SETTLE)
        added = server.memory_info().rss - before
        held = await postgres.connections() - connections if postgres else None
        for stream in following:
            stream.cancel()
    what = f"{count(len(waiting))} idle streams"
    lines = [Line(f"RSS added by {what}", megabytes(added), mark=STREAMS, judged=added)]
    if held is not None:
        lines.append(
            Line(f"database connections added by {what}", str(held), mark=CONNECTIONS, judged=held)
        )
    return lines
