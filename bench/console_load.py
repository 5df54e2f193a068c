"""What the console does with much: long lists, a fast stream, many events, and a page that only waits."""

import asyncio
import time
from typing import Any

import aiohttp
import asyncpg
from playwright.async_api import Browser, CDPSession, Page

from app.storage.postgres.urls import asyncpg_dsn
from bench.console_pages import DRAWN, HEAP, READY, heap_of, opened, timed
from bench.console_stream import EVENTS_OF_STEP, ManyEvents, before
from bench.fill import fill, templates
from bench.table import Line, Mark, count, megabytes

LISTS = Mark("<= 500 ms", most=0.5)
LONG_TASK = Mark("<= 100 ms", most=0.1)
BUSY = Mark("<= 50 %", most=0.5)
IDLE = Mark("<= 1 %", most=0.01)
LOST = Mark("0", most=0)
PER_SECOND = 1_000
OF_LISTS = (("runs", "tbody tr"), ("inbox", ".ticket-row"))
_MORE_TICKETS = """
INSERT INTO tickets SELECT k.* FROM generate_series(1, $1::int) AS n, tickets t,
    jsonb_populate_record(t, jsonb_build_object('id', md5('more' || n)::uuid, 'ticket_id', 'more-' || n,
        'created_at', now() - n * interval '1 second')) AS k
WHERE t.id = (SELECT id FROM tickets WHERE status = 'open' LIMIT 1)
"""
_LONG_TASKS = """
window.longest = 0;
new PerformanceObserver(list => {
    for (const { duration } of list.getEntries()) window.longest = Math.max(window.longest, duration / 1000);
}).observe({ type: 'longtask', buffered: true });
"""
_WORDS = """() => new Set([...document.querySelectorAll('.message.assistant')]
    .flatMap(one => one.textContent.match(/s[0-9]+w[0-9]+/g) ?? [])).size"""


async def lists(
    browser: Browser, http: aiohttp.ClientSession, base: str, database: str, *, quick: bool
) -> list[Line]:
    """The first page of each list, with the tables filled by SQL."""
    runs, tickets = (2_000, 500) if quick else (100_000, 10_000)
    connection = await asyncpg.connect(asyncpg_dsn(database))
    await fill(connection, await templates(connection, http, base), runs)
    await connection.execute("SET session_replication_role = replica")
    await connection.execute(_MORE_TICKETS, tickets)
    await connection.execute("VACUUM (ANALYZE) tickets")
    await connection.close()
    lines = []
    for (name, selector), size in zip(OF_LISTS, (runs, tickets), strict=True):
        async with opened(browser) as (_, page, _devtools):
            await page.goto(f"{base}/console/{name}")
            taken = await page.evaluate(DRAWN, selector)
        lines.append(timed(f"{name} of {count(size)}", taken, None if quick else LISTS))
    return lines


async def stream(browser: Browser, base: str, run_id: str, *, quick: bool) -> list[Line]:
    """A run that writes 1,000 events a second, then more of them than anyone reads."""
    seconds, most = (2, 10_000) if quick else (20, 60_000)
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{base}/v1/runs/{run_id}/snapshot") as response:
            after = int((await response.json())["last_event_id"])
    source = ManyEvents(base, run_id, after, PER_SECOND, PER_SECOND * seconds, most)
    async with before(source), opened(browser) as (_, page, devtools):
        await page.add_init_script(_LONG_TASKS)
        await devtools.send("Performance.enable")
        await page.goto(f"{source.base}/console/runs/{run_id}")
        await page.wait_for_selector(READY)
        await page.evaluate("() => { window.longest = 0; }")
        share = await _share_until(source.sent_steady, devtools)
        longest = float(await page.evaluate("() => window.longest"))
        lost = await _lost(page, most)
        used = await heap_of(devtools)
    return [
        Line("words that are lost", str(lost), mark=LOST, judged=lost),
        timed("longest task", longest, None if quick else LONG_TASK),
        _percent("share of the main thread", share, None if quick else BUSY),
        Line(f"heap after {count(most)} events", megabytes(used), mark=HEAP, judged=used),
    ]


async def idle(browser: Browser, base: str, *, quick: bool) -> list[Line]:
    """An inbox that is open, and nothing happens."""
    async with opened(browser) as (_, page, devtools):
        await devtools.send("Performance.enable")
        await page.goto(f"{base}/console/inbox")
        await page.wait_for_selector(READY)
        done = asyncio.Event()
        asyncio.get_running_loop().call_later(3 if quick else 20, done.set)
        share = await _share_until(done, devtools)
    return [_percent("share of a core", share, None if quick else IDLE)]


async def _share_until(done: asyncio.Event | None, devtools: CDPSession) -> float:
    """The part of the time until then for which the main thread had the CPU, also on a busy machine."""
    assert done is not None
    before, began = await _busy_seconds(devtools), time.perf_counter()
    await done.wait()
    return (await _busy_seconds(devtools) - before) / (time.perf_counter() - began)


async def _busy_seconds(devtools: CDPSession) -> float:
    found: dict[str, Any] = await devtools.send("Performance.getMetrics")
    return float(next(one["value"] for one in found["metrics"] if one["name"] == "ThreadTime"))


async def _lost(page: Page, most: int) -> int:
    """Words of whole steps that the page doesn't have when all were sent. Older steps are folded away."""
    steps = most // EVENTS_OF_STEP
    await page.wait_for_function(
        "step => document.body.textContent.includes(`s${step}w0 `)", arg=steps, timeout=120_000
    )
    await page.wait_for_function("() => !document.querySelector('[data-streaming]')")
    return steps * (EVENTS_OF_STEP - 3) - int(await page.evaluate(_WORDS))


def _percent(what: str, share: float, mark: Mark | None) -> Line:
    return Line(what, f"{share:.1%}", mark=mark, judged=share)
