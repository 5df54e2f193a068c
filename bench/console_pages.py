"""Pages of the console in a browser: how they are opened, and how long it takes until they are drawn."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, BrowserContext, CDPSession, Page

from bench.table import Line, Mark, milliseconds

HEAP = Mark("<= 120 MB", most=120_000_000)
READY = "body[data-ready]"
PATIENCE_MILLISECONDS = 120_000
DRAWN = """selector => new Promise(resolve => {
    const look = () => document.querySelector(selector)
        ? requestAnimationFrame(() => resolve(performance.now() / 1000)) : requestAnimationFrame(look);
    look();
})"""
"""Seconds from the start of the page until something is drawn."""


@asynccontextmanager
async def opened(browser: Browser) -> AsyncIterator[tuple[BrowserContext, Page, CDPSession]]:
    """A page of a user with an empty profile."""
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    page = await context.new_page()
    try:
        yield context, page, await context.new_cdp_session(page)
    finally:
        await context.close()


async def heap_of(devtools: CDPSession) -> float:
    """Bytes that the page's scripts hold."""
    await devtools.send("HeapProfiler.collectGarbage")
    return float((await devtools.send("Runtime.getHeapUsage"))["usedSize"])


def timed(what: str, seconds: float, mark: Mark | None) -> Line:
    return Line(what, milliseconds(seconds), mark=mark, judged=seconds)
