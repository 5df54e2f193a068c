"""`python -m bench.console`: what the web console costs, in a real Chromium and on the server.

Bytes, requests and memory have marks that hold on any machine. Times and the share of the server depend on it, so
`--quick` measures them without a mark. It fails if a mark is missed.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import uvloop
from playwright.async_api import Browser

from app.embedded_postgres.server import EmbeddedPostgres
from bench import processes
from bench.__main__ import agents_for, http_session, temporary_folder
from bench.clients import HoldfastClient, load
from bench.console_load import idle, lists, stream
from bench.console_pages import DRAWN, HEAP, READY, heap_of, opened, timed
from bench.console_server import followed_by, prepared_run
from bench.table import Line, Mark, count, megabytes, printed, times
from tests.support.console import built_console
from tests.system.console.browser import chromium

PAGES = ("inbox", "runs", "threads", "agents", "agents/short", "system", "start")
BYTES = Mark("<= 85 kB", most=85_000)
REQUESTS = Mark("<= 12", most=12)
COLD = Mark("<= 300 ms", most=0.3)
WARM = Mark("<= 120 ms", most=0.12)
CONVERSATION = Mark("<= 600 ms", most=0.6)
TIMELINE = Mark("<= 1,200 ms", most=1.2)
SHARE = Mark(">= 0.97x", least=0.97)
CONSOLES = 50
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of everything, a minute")
    quick = parser.parse_args().quick
    built_console()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sections = runner.run(_measure(quick=quick))
    print(printed(sections))
    if any("MISSED" in line.cells() for _, lines in sections for line in lines):
        sys.exit("bench: a mark of the console is missed")


async def _measure(*, quick: bool) -> list[tuple[str, Sequence[Line]]]:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        model = await stack.enter_async_context(processes.model(folder, 0))
        embedded = await asyncio.to_thread(EmbeddedPostgres.start, folder / "data")
        stack.push_async_callback(asyncio.to_thread, embedded.stop)
        settings = {
            "HOLDFAST_AGENTS": str(agents_for(folder, model)),
            "HOLDFAST_DATA_DIR": str(folder / "data"),
        }
        served = await stack.enter_async_context(processes.holdfast(folder, settings))
        http = await stack.enter_async_context(http_session())
        client = HoldfastClient(http, served.base)
        run_id, events = await prepared_run(http, served.base, rounds=2 if quick else 14)
        waiting = await client.suspend()
        browser = await stack.enter_async_context(chromium())
        title = f"a run of {events:,} events: seconds until it is drawn"
        return [
            ("pages: compressed bytes and requests", await _pages(browser, served.base)),
            ("pages: first contentful paint", await _paints(browser, served.base, quick=quick)),
            (title, await _run(browser, f"{served.base}/console/runs/{run_id}", quick=quick)),
            (
                "an open inbox in which nothing happens",
                await idle(browser, served.base, quick=quick),
            ),
            (
                "a run of 1,000 events a second",
                await stream(browser, served.base, waiting, quick=quick),
            ),
            (f"{CONSOLES} open consoles", await _share(client, quick=quick)),
            # Last, because the tables are full then.
            (
                "lists of many runs and tickets: seconds until they are drawn",
                await lists(browser, http, served.base, embedded.url, quick=quick),
            ),
        ]


@dataclass
class Traffic:
    """Bytes of a page's files and data as they are sent, by address.

    Streams have no end, so they aren't counted. What a slow page reads again counts once.
    """

    addresses: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, float] = field(default_factory=dict)

    def on_response(self, event: dict[str, Any]) -> None:
        if event["response"]["mimeType"] != "text/event-stream":
            self.addresses[event["requestId"]] = event["response"]["url"]

    def on_finished(self, event: dict[str, Any]) -> None:
        if address := self.addresses.get(event["requestId"]):
            self.sizes[address] = event["encodedDataLength"]


async def _pages(browser: Browser, base: str) -> list[Line]:
    lines = []
    for name in PAGES:
        async with opened(browser) as (_, page, devtools):
            traffic = Traffic()
            await devtools.send("Network.enable")
            devtools.on("Network.responseReceived", traffic.on_response)
            devtools.on("Network.loadingFinished", traffic.on_finished)
            await page.goto(f"{base}/console/{name}")
            await page.wait_for_selector(READY)
            await page.wait_for_function("() => !document.querySelector('.skeleton')")
            size, requests = sum(traffic.sizes.values()), len(traffic.sizes)
        lines += [
            Line(f"{name}: bytes", f"{size / 1000:.1f} kB", mark=BYTES, judged=size),
            Line(f"{name}: requests", str(requests), mark=REQUESTS, judged=requests),
        ]
    return lines


async def _paints(browser: Browser, base: str, *, quick: bool) -> list[Line]:
    cold: list[float] = []
    warm: list[float] = []
    for _ in range(3 if quick else 9):
        async with opened(browser) as (context, page, _devtools):
            for found in (cold, warm):
                await page.goto(f"{base}/console/inbox")
                await page.wait_for_selector(READY)
                found.append(float(await page.evaluate(PAINT)))
                page = await context.new_page()
    return [
        timed("cold", median(cold), None if quick else COLD),
        timed("warm", median(warm), None if quick else WARM),
    ]


async def _run(browser: Browser, url: str, *, quick: bool) -> list[Line]:
    lines = []
    views = (("conversation", ".call", CONVERSATION), ("timeline", ".span", TIMELINE))
    for tab, selector, mark in views:
        async with opened(browser) as (_, page, devtools):
            await page.goto(f"{url}?tab={tab}")
            taken = await page.evaluate(DRAWN, selector)
            lines.append(timed(tab, taken, None if quick else mark))
            used = await heap_of(devtools)
            lines.append(Line(f"{tab}: heap", megabytes(used), mark=HEAP, judged=used))
    return lines


async def _share(client: HoldfastClient, *, quick: bool) -> list[Line]:
    """Runs per second with and without viewers, in turns, so that both have the same machine."""
    runs, rounds = (100, 2) if quick else (800, 5)
    await load(client.short, runs=runs, at_once=16)
    alone: list[float] = []
    watched: list[float] = []
    for _ in range(rounds):
        alone.append((await load(client.short, runs=runs, at_once=16)).runs_per_second())
        async with followed_by(client.base, CONSOLES):
            watched.append((await load(client.short, runs=runs, at_once=16)).runs_per_second())
    ratio = median(watched) / median(alone)
    mark = None if quick else SHARE
    line = Line("runs/s", count(median(watched)), count(median(alone)), times(ratio), mark, ratio)
    return [line]


if __name__ == "__main__":
    main()
