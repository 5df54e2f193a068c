"""A headless Chromium that shows one page, and a server to which the page reports its events."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.envelopes import Envelope
from tests.support.listeners import listening
from tests.support.streams import TIMEOUT_SECONDS, Event
from tests.system.programs import program

PAGES = Path(__file__).parent / "pages"
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
_ANSWER = b"HTTP/1.0 204 No Content\r\n\r\n"


class Page:
    """What the page in the browser has reported so far."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.times_opened = 0
        self._envelope = Envelope()
        self.times_cut = 0
        self.closed = False
        self.shown: dict[str, str] = {}
        """Texts of the page when it closed its stream, by the ids of their elements."""
        self.server_was_killed = asyncio.Event()
        """Set by the test. A page that asks for it gets its answer then."""
        self._reported = asyncio.Event()
        self.port = 0

    async def has_reported(self, events: int) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while len(self.events) < events:
                self._reported.clear()
                await self._reported.wait()

    async def has_reported_one(self, wanted: Callable[[Event], bool]) -> None:
        """Waits until the page has reported an event like this."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not any(map(wanted, self.events)):
                self._reported.clear()
                await self._reported.wait()

    async def was_opened(self, times: int) -> None:
        """Waits until the page has been loaded this often."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while self.times_opened < times:
                self._reported.clear()
                await self._reported.wait()

    async def was_closed(self) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not self.closed:
                self._reported.clear()
                await self._reported.wait()

    async def listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower().decode()
        length = int(head.partition("content-length:")[2].split()[0])
        report = json.loads(await reader.readexactly(length))
        if "asked" in report:
            await self.server_was_killed.wait()
        else:
            self._take(report)
        writer.write(_ANSWER)

    def _take(self, report: dict[str, Any]) -> None:
        if "data" in report:
            self.events.append(self._envelope.restore(report["id"], report["data"]))
        elif "opened" in report:
            self.times_opened += 1
        elif report["closed"]:
            self.closed = True
            self.shown = report.get("shown", {})
        else:
            self.times_cut += 1
        self._reported.set()


@asynccontextmanager
async def page_reports() -> AsyncIterator[Page]:
    page = Page()
    async with listening(page.listen) as page.port:
        yield page


@asynccontextmanager
async def browsing(url: str, profile: Path) -> AsyncIterator[None]:
    """Chromium shows this page in a new profile. It finds no host but this machine."""
    log = profile.with_suffix(".log")
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            program("chromium"),
            *_FLAGS,
            f"--user-data-dir={profile}",
            url,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await process.wait()
