"""`python -m bench`: start what is needed, measure, print the table.

Everything runs in processes of its own on this machine: the fake model, the floor, and `holdfast serve`
with default settings on an embedded Postgres in a temporary folder, or on DATABASE_URL. All of them and
the clients share its cores, so compare ratios, not figures, and repeat.
"""

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
import uvloop

from app.embedded_postgres.server import EmbeddedPostgres
from bench import processes, speed
from bench.clients import FloorClient, HoldfastClient, Unexpected
from bench.crowd import crowd
from bench.database import Postgres
from bench.growth import EARLY, LATE, growth
from bench.machine import machine
from bench.memory import memory
from bench.processes import NotStarted, Served
from bench.providers import providers
from bench.speed import Stage
from bench.start import start
from bench.storm import storm
from bench.table import Line, printed

HERE = Path(__file__).resolve().parent
MODEL_PORT = 9911
"""The address of the model in agents.toml."""
CONCURRENCY = 600
"""Runs that the server executes at once; the default is less than the crowd has."""

SPEED = {"short": speed.short, "long": speed.long, "tool": speed.tool, "hitl": speed.hitl}
TITLES = {
    "short": "short: replies of 20 tokens, a thread each",
    "long": "long: replies of 5,000 tokens",
    "tool": "tool: a call, then a reply",
    "hitl": "hitl: a call that waits for its approval, then a reply",
    "crowd": "crowd: 500 streams at 50 tokens/s each",
    "storm": "storm: 2,000 streams that open again at once, beside what is named instead of the floor",
    "providers": "providers: reading the streams of each provider, without a server",
    "growth": f"growth: turn {LATE} of a thread, beside turn {EARLY} instead of the floor",
    "start": "start: one more server process on a database that has the schema",
    "memory": "memory: what waiting costs",
}


def main() -> None:
    options = _options()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(runner.run(_measure(options)))
    except* (NotStarted, Unexpected) as errors:
        sys.exit("\n".join(f"bench: {error}" for error in errors.exceptions))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").strip())
    parser.add_argument("--only", help=f"some of {','.join(TITLES)}", default=",".join(TITLES))
    parser.add_argument("--quick", action="store_true", help="less of everything, under a minute")
    parser.add_argument(
        "--base",
        help="measure the server there; it has bench/agents.toml, and DATABASE_URL is that of its "
        "database. What needs its process isn't measured.",
    )
    options = parser.parse_args()
    options.only = options.only.split(",")
    if unknown := set(options.only) - set(TITLES):
        parser.error(f"--only knows {', '.join(TITLES)}; not {', '.join(sorted(unknown))}")
    return options


async def _measure(options: argparse.Namespace) -> str:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        port = MODEL_PORT if options.base else 0
        model = await stack.enter_async_context(processes.model(folder, port))
        floor = await stack.enter_async_context(processes.floor(folder, model.base))
        server, database_url = await _server(options.base, stack, folder, model)
        postgres = None
        if database_url is not None:
            postgres = await stack.enter_async_context(Postgres.open(database_url))
        http = await stack.enter_async_context(http_session())
        stage = Stage(
            floor=FloorClient(http, floor.base),
            ours=HoldfastClient(http, server.base),
            floor_process=floor,
            our_process=server,
            postgres=postgres,
            rounds=2 if options.quick else 3,
            share=0.25 if options.quick else 1.0,
        )
        about = await machine(postgres)
        sections = [
            (TITLES[name], await _lines(name, stage, model, quick=options.quick))
            for name in TITLES
            if name in options.only and name != "start"
        ]
        if "start" in options.only and database_url is not None:
            print("measuring start ...", file=sys.stderr, flush=True)
            started = await start(folder, database_url, agents_for(folder, model))
            sections.append((TITLES["start"], started))
        return f"{about}\n\n{printed(sections)}"


async def _lines(name: str, stage: Stage, model: Served, *, quick: bool) -> Sequence[Line]:
    print(f"measuring {name} ...", file=sys.stderr, flush=True)
    if name in SPEED:
        return await SPEED[name](stage)
    if name == "crowd":
        return await crowd(stage, streams=100 if quick else 500)
    if name == "storm":
        return await storm(stage, streams=400 if quick else 2_000)
    if name == "providers":
        return await providers(model.base, answers=40 if quick else 200)
    if name == "growth":
        if stage.postgres is None:
            return [Line("needs DATABASE_URL", "")]
        return await growth(stage.ours, stage.postgres, pairs=10 if quick else 40)
    if stage.our_process.pid is None:
        return [Line("needs a server that was started here", "")]
    return await memory(
        stage.ours,
        stage.postgres,
        stage.our_process.pid,
        suspended=1_000 if quick else 10_000,
        streams=1_000,
    )


async def _server(
    base: str | None, stack: AsyncExitStack, folder: Path, model: Served
) -> tuple[Served, str | None]:
    """The server, and the URL of its database if known."""
    url = os.environ.get("DATABASE_URL")
    if base is not None:
        return Served(base.rstrip("/"), None), url
    settings = {
        "HOLDFAST_AGENTS": str(agents_for(folder, model)),
        "HOLDFAST_MIGRATE": "1",
        "HOLDFAST_CONCURRENCY": str(CONCURRENCY),
    }
    if url is None:
        data = folder / "data"
        embedded = await asyncio.to_thread(EmbeddedPostgres.start, data)
        stack.push_async_callback(asyncio.to_thread, embedded.stop)
        settings["HOLDFAST_DATA_DIR"] = str(data)
        url = embedded.url
    return await stack.enter_async_context(processes.holdfast(folder, settings)), url


def agents_for(folder: Path, model: Served) -> Path:
    """The agents file with the current address of the model, and its tools beside it."""
    text = (HERE / "agents.toml").read_text()
    mine = folder / "agents.toml"
    mine.write_text(text.replace(f"http://127.0.0.1:{MODEL_PORT}/v1", model.base))
    shutil.copy(HERE / "bench_tools.py", folder)
    return mine


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A temporary folder that a server of another user may enter."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        yield folder


@asynccontextmanager
async def http_session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=600)
    ) as http:
        yield http


if __name__ == "__main__":
    main()
