"""Hundreds of streams at reading speed, which is the load of real models."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import TypeAlias
from uuid import uuid4

from bench.clients import SAY, Unexpected, start_request
from bench.plain_streams import PlainStream, open_stream
from bench.speed import Stage, cpu_clock, unknown_cpu
from bench.table import Line, Mark, microseconds, milliseconds, times

TOKENS = 500
INTERVAL = 0.02
"""Seconds between two tokens of a stream; both numbers are in the name of the model."""
MODEL = "fake-500-20ms"
RAMP_SECONDS = 5.0
"""The streams begin over this time."""

CPU = Mark("<= 30 us", most=30e-6)
PACE = Mark("<= 1.1x", most=1.1)
LAG = Mark("<= +50 ms", most=0.05)

Open: TypeAlias = Callable[[Callable[[int], None]], Awaitable[PlainStream]]


@dataclass(frozen=True, slots=True)
class Crowd:
    """What a crowd of streams got."""

    seconds: float
    lags: Sequence[float]
    """How late each token came, behind a steady clock that starts with its stream's first token."""
    cpu: float
    """CPU seconds of the server for each token."""
    postgres_cpu: float

    @property
    def pace(self) -> float:
        """The time that it took, as a multiple of the model's."""
        return self.seconds / (RAMP_SECONDS + TOKENS * INTERVAL)

    @property
    def lag_p99(self) -> float:
        return quantiles(self.lags, n=100)[98]


async def crowd(stage: Stage, *, streams: int) -> list[Line]:
    floor_cpu = cpu_clock(stage.floor_process)
    our_cpu = cpu_clock(stage.our_process)
    postgres_cpu = stage.postgres.cpu_seconds if stage.postgres else unknown_cpu

    def floor_stream(received: Callable[[int], None]) -> Awaitable[PlainStream]:
        return open_stream(stage.floor.base, "/", body={"model": MODEL}, received=received)

    def our_stream(received: Callable[[int], None]) -> Awaitable[PlainStream]:
        start = start_request("slow", str(uuid4()), SAY)
        return open_stream(stage.ours.base, "/v1/runs", body=start, received=received)

    floor = await _measured(floor_stream, streams, floor_cpu, unknown_cpu)
    ours = await _measured(our_stream, streams, our_cpu, postgres_cpu)
    later = ours.lag_p99 - floor.lag_p99
    return [
        Line(
            "CPU per token",
            microseconds(ours.cpu),
            microseconds(floor.cpu),
            times(ours.cpu / floor.cpu) if floor.cpu else "",
            CPU,
            ours.cpu,
        ),
        Line("CPU per token, Postgres", microseconds(ours.postgres_cpu)),
        Line(
            "time beside the model's own",
            times(ours.pace),
            times(floor.pace),
            times(ours.pace / floor.pace),
            PACE,
            ours.pace,
        ),
        Line(
            "lag of a token, p99",
            milliseconds(ours.lag_p99),
            milliseconds(floor.lag_p99),
            f"{later * 1000:+.0f} ms",
            LAG,
            later,
        ),
    ]


async def _measured(
    opened: Open, streams: int, cpu: Callable[[], float], postgres_cpu: Callable[[], float]
) -> Crowd:
    lags: list[float] = []
    before, before_postgres, began = cpu(), postgres_cpu(), time.perf_counter()
    async with asyncio.TaskGroup() as clients:
        for number in range(streams):
            clients.create_task(_one(opened, number * RAMP_SECONDS / streams, lags))
    tokens = streams * TOKENS
    return Crowd(
        time.perf_counter() - began,
        lags,
        (cpu() - before) / tokens,
        (postgres_cpu() - before_postgres) / tokens,
    )


async def _one(opened: Open, begin: float, lags: list[float]) -> None:
    await asyncio.sleep(begin)
    words, first_at = 0, 0.0

    def received(count: int) -> None:
        nonlocal words, first_at
        # At its end our stream repeats all tokens as one message.
        count = min(count, TOKENS - words)
        now = time.perf_counter()
        if not words:
            first_at = now
        # The oldest of the tokens that came together is the latest one.
        due = first_at + words * INTERVAL
        words += count
        lags.extend([now - due] * count)

    stream = await opened(received)
    await stream.ended
    if words < TOKENS:
        raise Unexpected(f"a stream of {TOKENS} tokens had {words}")
