"""`python -m bench.tables`: how fast lists and runs are with a million runs in the tables.

It fills an embedded Postgres by SQL, which takes minutes, and asks a server over HTTP. With `--data` the filled
database stays in that folder, and the next measurement with it fills nothing.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import TypeAlias

import aiohttp
import asyncpg
import uvloop

from app.embedded_postgres.server import EmbeddedPostgres
from app.storage.postgres.connection import DatabaseConnection
from app.storage.postgres.urls import asyncpg_dsn
from app.storage.usage.sums import sum_next_hour
from bench import processes
from bench.__main__ import agents_for, http_session, temporary_folder
from bench.clients import HoldfastClient, load
from bench.database import Postgres
from bench.fill import fill, templates
from bench.table import Line, Mark, count, milliseconds, printed, times
from bench.table_lists import EXPORTS, Lists, lists
from bench.table_upkeep import upkeep

Measure: TypeAlias = Callable[[], Awaitable[Sequence[Line]]]

REQUESTS = 30
LIST = Mark("p95 <= 50 ms", most=1)
RUNS = Mark("p50 <= 20, p95 <= 50 ms", most=1)
MOST_P95, MOST_P50_OF_RUNS = 0.05, 0.02
SHORT = Mark(">= 0.95x", least=0.95)
ROUNDS = 5
_COUNTS = """
SELECT (SELECT count(*) FROM runs) AS runs, (SELECT count(*) FROM events) AS events,
    (SELECT count(*) FROM tickets) AS tickets, (SELECT count(*) FROM usage) AS billed,
    pg_database_size(current_database()) AS bytes
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tables", description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000, help="runs in the tables")
    parser.add_argument("--data", type=Path, help="folder in which the filled database stays")
    parser.add_argument("--only", default="", help="only sections whose title has this word")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(runner.run(_measure(parser.parse_args())))


async def _measure(options: argparse.Namespace) -> str:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        model = await stack.enter_async_context(processes.model(folder, 0))
        http = await stack.enter_async_context(http_session())
        agents = str(agents_for(folder, model))
        for name in ("empty", "full"):
            (folder / name).mkdir()
        empty, _ = await _server(stack, folder / "empty", agents, folder / "data")
        base, url = await _server(stack, folder / "full", agents, options.data or folder / "filled")
        about = await _filled(asyncpg_dsn(url), http, base, options.runs)
        postgres = await stack.enter_async_context(Postgres.open(url))
        client = HoldfastClient(http, base)
        measures: dict[str, Measure] = {
            # First, so that the newest rows of the lists are copies, too.
            **{
                title: partial(_lists, http, postgres, base, title, paths)
                for title, paths in lists().items()
            },
            "short, beside empty tables": partial(_short, HoldfastClient(http, empty), client),
            "retention and deletion": partial(upkeep, url, http, client, base),
        }
        sections: list[tuple[str, Sequence[Line]]] = []
        for title, measure in measures.items():
            if options.only in title:
                _report(f"measuring {title} ...")
                sections.append((title, await measure()))
        return f"{about}\n\n{printed(sections)}"


async def _server(stack: AsyncExitStack, folder: Path, agents: str, data: Path) -> tuple[str, str]:
    """The addresses of a server and of its database."""
    embedded = await asyncio.to_thread(EmbeddedPostgres.start, data)
    stack.push_async_callback(asyncio.to_thread, embedded.stop)
    settings = {
        "HOLDFAST_AGENTS": agents,
        "HOLDFAST_DATA_DIR": str(data),
        "HOLDFAST_MIGRATE": "1",
        # Retention has rows of its own.
        "HOLDFAST_RETENTION_INTERVAL": "86400",
    }
    served = await stack.enter_async_context(processes.holdfast(folder, settings))
    return served.base, embedded.url


async def _filled(dsn: str, http: aiohttp.ClientSession, base: str, runs: int) -> str:
    """Fill the tables if they are empty. Returns the numbers of rows."""
    connection = await asyncpg.connect(dsn)
    try:
        if await connection.fetchval("SELECT count(*) FROM usage") < runs // 2:
            _report(f"filling the tables with {runs:,} runs ...")
            await fill(connection, await templates(connection, http, base), runs)
            began = time.perf_counter()
            while await _sum_usage(connection):
                pass
            _report(f"the sums of usage took {time.perf_counter() - began:.0f} s")
        rows = await connection.fetchrow(_COUNTS)
    finally:
        await connection.close()
    assert rows is not None, "a count always has a row"
    numbers = ", ".join(f"{rows[name]:,} {name}" for name in ("runs", "events", "tickets"))
    return f"{numbers}, {rows['billed']:,} rows of usage, {rows['bytes'] / 1e9:.1f} GB"


async def _sum_usage(connection: asyncpg.Connection) -> bool:
    async with connection.transaction():
        return await sum_next_hour(DatabaseConnection(connection)) is not None


async def _short(empty: HoldfastClient, full: HoldfastClient) -> list[Line]:
    """Runs per second, alternately in both databases."""
    rates: dict[HoldfastClient, list[float]] = {empty: [], full: []}
    for client in rates:
        await load(client.short, runs=200, at_once=16)
    for _ in range(ROUNDS):
        for client, found in rates.items():
            found.append((await load(client.short, runs=600, at_once=16)).runs_per_second())
    ratio = median(own / other for own, other in zip(rates[full], rates[empty], strict=True))
    shown = [count(median(rates[client])) for client in (full, empty)]
    return [Line("16 at a time: runs/s", shown[0], shown[1], times(ratio), SHORT, ratio)]


async def _lists(
    http: aiohttp.ClientSession, postgres: Postgres, base: str, title: str, paths: Lists
) -> list[Line]:
    mark = None if title == EXPORTS else RUNS if title.startswith("runs") else LIST
    return [await _list(http, postgres, what, base + path, mark) for what, path in paths.items()]


async def _list(
    http: aiohttp.ClientSession, postgres: Postgres, what: str, url: str, mark: Mark | None
) -> Line:
    """The time of a request. The least one, and the CPU of Postgres, depend less on what else the machine does."""
    taken = []
    before = postgres.cpu_seconds()
    for _ in range(REQUESTS):
        began = time.perf_counter()
        async with http.get(url) as response:
            response.raise_for_status()
            await response.read()
        taken.append(time.perf_counter() - began)
    spent = (postgres.cpu_seconds() - before) / REQUESTS
    p50, p95 = median(taken), quantiles(taken, n=20)[-1]
    shown = f"{milliseconds(p50)}, p95 {milliseconds(p95)}, least {milliseconds(min(taken))}, {milliseconds(spent)} CPU"
    worst = max(p95 / MOST_P95, p50 / MOST_P50_OF_RUNS if mark is RUNS else 0)
    return Line(what, shown, mark=mark, judged=worst)


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
