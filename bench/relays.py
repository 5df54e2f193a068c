"""`python -m bench.relays`: the delay of events on another replica, by hint transport.

Two servers on one embedded Postgres; each run is followed through both at once. The result is how much
later the other replica shows an event, over NOTIFY and over NATS, measured alternately.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from app.embedded_postgres.server import EmbeddedPostgres
from app.storage import migrations
from tests.support.nats import nats_server
from tests.support.servers import serving
from tests.support.streams import Client

WORDS = "one two three four five six seven eight nine ten eleven twelve " * 8
AGENTS = """
[models.slow]
provider = "scripted"
script = "plain"
delay_ms = 10

[agents.talker]
model = "slow"
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.relays", description=__doc__)
    parser.add_argument("--runs", type=int, default=8, help="runs at once")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        agents = folder / "agents.toml"
        agents.write_text(AGENTS)
        embedded = EmbeddedPostgres.start(folder / "data")
        try:
            print(asyncio.run(_measure(embedded.url, agents, options.runs, options.rounds)))
        finally:
            embedded.stop()


async def _measure(url: str, agents: Path, runs: int, rounds: int) -> str:
    later: dict[str, list[float]] = {"notify": [], "nats": []}
    await migrations.upgrade(url)
    async with nats_server() as nats:
        wires: dict[str, dict[str, str]] = {"notify": {}, "nats": {"nats_url": nats.url}}
        for _ in range(rounds):
            for wire, settings in wires.items():
                print(f"measuring {wire} ...", file=sys.stderr, flush=True)
                later[wire] += await _round(url, agents, settings, runs)
    lines = [f"{wire:8} {_printed(found)}" for wire, found in later.items()]
    ratio = statistics.median(later["notify"]) / statistics.median(later["nats"])
    return "\n".join([*lines, f"NOTIFY takes {ratio:.2f} times as long as NATS (median)"])


def _printed(found: Sequence[float]) -> str:
    cuts = statistics.quantiles(found, n=100)
    return (
        f"{len(found):6} events   p50 {cuts[49] * 1000:6.2f} ms   p95 {cuts[94] * 1000:6.2f} ms"
        f"   p99 {cuts[98] * 1000:6.2f} ms"
    )


async def _round(url: str, agents: Path, settings: dict[str, str], runs: int) -> list[float]:
    async with AsyncExitStack() as stack:
        here, there = [
            await stack.enter_async_context(
                (
                    await stack.enter_async_context(
                        serving(url, agents=agents, log_poll=60, **settings)
                    )
                ).client()
            )
            for _ in range(2)
        ]
        return [
            one
            for found in await asyncio.gather(*(_one_run(here, there) for _ in range(runs)))
            for one in found
        ]


async def _one_run(here: Client, there: Client) -> list[float]:
    """The delay of each delta on the replica that doesn't execute the run."""
    thread = (await here.post("/v1/threads", {}, 201))["id"]
    followed = [asyncio.Event(), asyncio.Event()]

    async def seen(client: Client, follows: asyncio.Event) -> dict[int, float]:
        at: dict[int, float] = {}
        async with client.events(f"/v1/threads/{thread}") as stream:
            follows.set()
            while (event := await stream.next()) is not None:
                if event["event_type"] == "text_delta":
                    at[event["seq"]] = time.perf_counter()
                if event["event_type"] == "run_finish":
                    return at
        raise AssertionError("a stream has ended before its run")

    async def begin() -> None:
        await asyncio.gather(*(one.wait() for one in followed))
        await here.start("talker", WORDS, thread_id=thread)

    near, far, _ = await asyncio.gather(seen(here, followed[0]), seen(there, followed[1]), begin())
    return [far[seq] - near[seq] for seq in near]


if __name__ == "__main__":
    main()
