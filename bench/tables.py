"""`python -m bench.tables`: how fast lists and runs are with a million runs in the tables.

It fills an embedded Postgres in a temporary folder by SQL, which takes minutes, and asks a server over HTTP.
"""

import argparse
import asyncio
import sys
import time
from contextlib import AsyncExitStack
from statistics import median, quantiles

import aiohttp
import asyncpg
import uvloop

from app.embedded_postgres.server import EmbeddedPostgres
from app.storage.postgres.urls import asyncpg_dsn
from bench import processes
from bench.__main__ import agents_for, http_session, temporary_folder
from bench.clients import HoldfastClient, load
from bench.database import Postgres
from bench.fill import Templates, fill
from bench.table import Line, Mark, count, milliseconds, printed, times

REQUESTS = 30
LIST = Mark("p95 <= 50 ms", most=0.05)
SHORT = Mark(">= 0.95x", least=0.95)
ROUNDS = 3
ROWS = """
SELECT (SELECT count(*) FROM runs) AS runs, (SELECT count(*) FROM events) AS events,
    pg_database_size(current_database()) AS bytes
"""

LISTS = {
    "runs, newest": "/v1/runs",
    "runs, oldest": "/v1/runs?order=asc",
    "runs that wait": "/v1/runs?status=waiting",
    "runs that are executed: none": "/v1/runs?status=running",
    "runs that succeeded": "/v1/runs?outcome=succeeded",
    "runs that were cancelled: 2 %": "/v1/runs?outcome=cancelled",
    "runs that were blocked: 1 of 20,000": "/v1/runs?outcome=blocked",
    "runs that failed: none": "/v1/runs?outcome=failed",
    "runs of a usual agent": "/v1/runs?agent_id=agent-3",
    "runs of a rare agent": "/v1/runs?agent_id=rare",
    "runs of an unknown agent": "/v1/runs?agent_id=unknown",
    "waiting runs of a rare agent": "/v1/runs?agent_id=rare&status=waiting",
    "blocked runs of a usual agent": "/v1/runs?agent_id=agent-3&outcome=blocked",
    "runs of a customer": "/v1/runs?metadata.customer=c-77",
    "runs of an unknown customer": "/v1/runs?metadata.customer=nobody",
    "runs with usual metadata": "/v1/runs?metadata.plan=plan-1",
    "tickets that are open": "/v1/tickets",
    "tickets of a rare agent": "/v1/tickets?agent_id=rare",
    "tickets of an unknown agent": "/v1/tickets?agent_id=unknown",
    "tickets: open approvals": "/v1/tickets?status=open&kind=approval",
    "tickets of a kind that none has": "/v1/tickets?kind=input",
    "tickets of an unknown thread": "/v1/tickets?thread_key=none",
    "threads, newest": "/v1/threads",
    "threads by their last run": "/v1/threads?sort=last_run_at",
    "threads by a word of the title: 1 of 1,000": "/v1/threads?sort=last_run_at&title=zinc",
    "threads by a usual word of the title": "/v1/threads?sort=last_run_at&title=order+pap",
    "threads by a word that none has": "/v1/threads?sort=last_run_at&title=zebra",
    "run summaries, newest": "/v1/run-summaries",
    "run summaries that wait": "/v1/run-summaries?status=waiting",
    "run summaries: blocked, of a usual agent": "/v1/run-summaries?agent_id=agent-3&outcome=blocked",
    "run summaries of a customer": "/v1/run-summaries?metadata.customer=c-77",
    "run statistics of a day": "/v1/stats/runs",
    "run statistics of 24 days": "/v1/stats/runs?bucket=day",
    "run statistics of a rare agent": "/v1/stats/runs?bucket=day&agent_id=rare",
    "the queue": "/v1/queue",
    "the queue of a rare agent": "/v1/queue?agent_id=rare",
    "workers": "/v1/workers",
    "usage by model, 30 days": "/v1/usage?group_by=model",
    "usage by agent and day, 30 days": "/v1/usage?group_by=agent,day",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tables", description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000, help="runs in the tables")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(runner.run(_measure(parser.parse_args().runs)))


async def _measure(runs: int) -> str:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        model = await stack.enter_async_context(processes.model(folder, 0))
        http = await stack.enter_async_context(http_session())
        data = folder / "data"
        embedded = await asyncio.to_thread(EmbeddedPostgres.start, data)
        stack.push_async_callback(asyncio.to_thread, embedded.stop)
        settings = {
            "HOLDFAST_AGENTS": str(agents_for(folder, model)),
            "HOLDFAST_DATA_DIR": str(data),
        }
        async with processes.holdfast(folder, settings) as served:
            client = HoldfastClient(http, served.base)
            empty = await _runs_per_second(client)
            templates = await _templates(http, client, served.base)
            _report(f"filling the tables with {runs:,} runs ...")
            connection = await asyncpg.connect(asyncpg_dsn(embedded.url))
            await fill(connection, templates, runs)
            rows = await connection.fetchrow(ROWS)
            assert rows is not None, "a count always has a row"
            await connection.close()
            _report("measuring ...")
            full = await _runs_per_second(client)
            postgres = await stack.enter_async_context(Postgres.open(embedded.url))
            lists = [
                await _list(http, postgres, what, served.base + path)
                for what, path in LISTS.items()
            ]
        about = f"{rows['runs']:,} runs, {rows['events']:,} events, {rows['bytes'] / 1e9:.1f} GB"
        speed = Line(
            "16 at a time: runs/s",
            count(full),
            count(empty),
            times(full / empty),
            SHORT,
            full / empty,
        )
        return f"{about}\n\n{printed([('short, beside empty tables', [speed]), ('lists', lists)])}"


async def _runs_per_second(client: HoldfastClient) -> float:
    await load(client.short, runs=200, at_once=16)
    rounds = [await load(client.short, runs=800, at_once=16) for _ in range(ROUNDS)]
    return median(one.runs_per_second() for one in rounds)


async def _templates(http: aiohttp.ClientSession, client: HoldfastClient, base: str) -> Templates:
    waiting = await client.suspend()
    await client.short()
    async with http.get(f"{base}/v1/runs?limit=1&agent_id=short&status=done") as response:
        [finished] = (await response.json())["items"]
    return Templates(finished["id"], waiting, finished["thread_id"])


async def _list(http: aiohttp.ClientSession, postgres: Postgres, what: str, url: str) -> Line:
    """The time of a request, and the CPU that Postgres spends on it, which a busy machine changes less."""
    taken = []
    before = postgres.cpu_seconds()
    for _ in range(REQUESTS):
        began = time.perf_counter()
        async with http.get(url) as response:
            response.raise_for_status()
            await response.read()
        taken.append(time.perf_counter() - began)
    p95 = quantiles(taken, n=20)[-1]
    spent = (postgres.cpu_seconds() - before) / REQUESTS
    shown = f"{milliseconds(median(taken))}, p95 {milliseconds(p95)}, {milliseconds(spent)} CPU"
    return Line(what, shown, mark=LIST, judged=p95)


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
