"""A reconnect storm: after a deploy or a restart of a proxy, all clients open their streams again at once."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from statistics import quantiles
from uuid import uuid4

from bench.clients import SAY, HoldfastClient
from bench.plain_streams import PlainStream, open_stream
from bench.speed import Stage, cpu_clock
from bench.table import Line, Mark, microseconds, milliseconds, times

RUNS = 100
"""Waiting runs, which the streams follow."""
AT_ONCE = 8
"""Streams that open together when the cost of one is measured."""
CONNECTING = 50
"""Clients that connect in the same moment of the storm."""
SECONDS_BEFORE = 4.0
"""How long other requests are measured before the storm."""

OPENING = Mark("<= 2x", most=2)
LONGER = Mark("<= +100 ms", most=0.1)


async def storm(stage: Stage, *, streams: int) -> list[Line]:
    ours, cpu = stage.ours, cpu_clock(stage.our_process)
    waiting = [await ours.ask() for _ in range(RUNS)]

    def reopen(number: int) -> Awaitable[PlainStream]:
        run, cursor, _ = waiting[number % RUNS]
        target = f"/v1/runs/{run}/events?follow=1"
        return open_stream(ours.base, target, headers={"last-event-id": cursor})

    def look(_: int) -> Awaitable[PlainStream]:
        return open_stream(ours.base, "/health/live", headers={"connection": "close"})

    async def cost(opened: Callable[[int], Awaitable[PlainStream]]) -> float:
        """CPU seconds of one request on a connection of its own."""
        before = cpu()
        for first in range(0, streams // 2, AT_ONCE):
            some = await asyncio.gather(*map(opened, range(first, first + AT_ONCE)))
            await asyncio.gather(*(one.opened for one in some))
            for one in some:
                one.close()
        return (cpu() - before) / (streams // 2)

    await cost(look)
    looking, opening = await cost(look), await cost(reopen)
    calm = await _others(ours, asyncio.sleep(SECONDS_BEFORE))
    began = time.perf_counter()
    stormy = await _others(ours, _reopened(reopen, streams))
    took = time.perf_counter() - began
    lines = [
        Line(
            "CPU of opening a stream, beside GET /health/live",
            microseconds(opening),
            microseconds(looking),
            times(opening / looking) if looking else "",
            OPENING,
            opening / looking if looking else None,
        ),
        Line(f"all {streams:,} streams are open again after", f"{took:.2f} s"),
    ]
    for what, before, during in zip(("start", "decision"), calm, stormy, strict=True):
        longer = _p95(during) - _p95(before)
        lines.append(
            Line(
                f"a {what} of others, beside before the storm, p95",
                milliseconds(_p95(during)),
                milliseconds(_p95(before)),
                f"{longer * 1000:+.0f} ms",
                LONGER,
                longer,
            )
        )
    return lines


async def _reopened(reopen: Callable[[int], Awaitable[PlainStream]], streams: int) -> None:
    opened: list[PlainStream] = []
    for first in range(0, streams, CONNECTING):
        # So that this process can measure others meanwhile; the server gets them within a moment.
        opened += await asyncio.gather(*map(reopen, range(first, first + CONNECTING)))
    await asyncio.gather(*(one.opened for one in opened))
    for one in opened:
        one.close()


async def _others(ours: HoldfastClient, until: Awaitable[None]) -> tuple[list[float], list[float]]:
    """How long starts and decisions of other clients wait, until something is done."""
    starts: list[float] = []
    decisions: list[float] = []
    is_over = False

    async def start() -> None:
        while not is_over:
            starts.append((await ours.turn(str(uuid4()), SAY)).first_frame)

    async def decide() -> None:
        while not is_over:
            decisions.append(await ours.decision())

    async with asyncio.TaskGroup() as clients:
        for _ in range(2):
            clients.create_task(start())
            clients.create_task(decide())
        await until
        is_over = True
    return starts, decisions


def _p95(seconds: Sequence[float]) -> float:
    return quantiles(seconds, n=20)[18]
