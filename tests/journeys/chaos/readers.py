"""Readers of streams that reconnect with their last id, as browsers do."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

import asyncpg
import httpx2

from app.clock import sleep
from app.storage.postgres.database import DATABASE_UNAVAILABLE
from tests.journeys.chaos.history import Frame, ReaderRecord
from tests.support.envelopes import Envelope, Event

EVENT_STREAM = {"Accept": "text/event-stream"}
_IDLE_TIMEOUT_SECONDS = 2.5
"""Seconds without a frame or heartbeat after which a reader reconnects."""
_RETRY_SECONDS = 0.1
_RETRYABLE = frozenset({429, 503})


class Routes(Protocol):
    """Chooses the base URL of each connection."""

    def base_url(self) -> str | None: ...


class Witness:
    """Asks the database directly whether an event that a client received is in the log."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._asking = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._leave()

    async def sees(self, thread_id: str, seq: int) -> bool | None:
        """None while the database is unreachable."""
        async with self._asking:
            try:
                async with asyncio.timeout(2):
                    if self._connection is None or self._connection.is_closed():
                        self._connection = await asyncpg.connect(self._url)
                    seen: bool = await self._connection.fetchval(
                        "SELECT EXISTS (SELECT FROM events WHERE thread_id = $1 AND seq = $2)",
                        thread_id,
                        seq,
                    )
                    return seen
            except DATABASE_UNAVAILABLE:
                self._leave()
                return None

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


class Reader:
    """Reads the stream of a run until the server reports its end, or of a thread until the trial ends."""

    def __init__(
        self,
        reader_record: ReaderRecord,
        http: httpx2.AsyncClient,
        routes: Routes,
        witness: Witness,
        now: Callable[[], float],
    ) -> None:
        self._record = reader_record
        self._http = http
        self._routes = routes
        self._witness = witness
        self._now = now

    async def follow(self, over: asyncio.Event | None = None) -> None:
        """Reconnect until the end. A thread has no end, so `over` tells when to stop at the end of its log."""
        while not self._record.ended:
            if (base := self._routes.base_url()) is not None:
                with suppress(httpx2.TransportError, TimeoutError):
                    if over is not None and over.is_set():
                        await self._check_for_more(base)
                    if not self._record.ended:
                        await self._connect(base, is_run=over is None)
            await sleep(_RETRY_SECONDS)

    @property
    def _cursor(self) -> int:
        return self._record.frames[-1].seq if self._record.frames else 0

    async def _check_for_more(self, base: str) -> None:
        url = f"{base}{self._record.path}/events?cursor={self._cursor}&limit=1&include=state,trace"
        response = await self._http.get(url)
        self._record.ended = response.status_code == 200 and not response.json()["items"]

    async def _connect(self, base: str, *, is_run: bool) -> None:
        url = f"{base}{self._record.path}/events?include=state,trace{'&follow=1' if is_run else ''}"
        last = {"Last-Event-ID": str(self._cursor)} if self._record.frames else {}
        async with self._http.stream("GET", url, headers=EVENT_STREAM | last) as response:
            if response.status_code == 200:
                await self.listen(response, until_done=is_run)
            elif response.status_code == 204:
                self._record.ended = True
            elif response.status_code not in _RETRYABLE:
                await response.aread()
                self._record.refusals.append({"status": response.status_code, "url": url})
                self._record.ended = True

    async def listen(self, response: httpx2.Response, *, until_done: bool) -> None:
        """Read a stream to its clean end; raises if the stream is cut."""
        self._record.connections += 1
        source = aiter(httpx2.EventSource(response))
        envelope = Envelope()
        while True:
            async with asyncio.timeout(_IDLE_TIMEOUT_SECONDS):
                sse = await anext(source, None)
            if sse is None:
                break
            if sse.data:
                await self._received(envelope.restore(sse.id, sse.data))
        self._record.ended = until_done

    async def _received(self, event: Event) -> None:
        at = self._now()
        is_sampled = event["event_type"] != "text_delta" or event["seq"] % 10 == 0
        in_log = await self._witness.sees(event["thread_id"], event["seq"]) if is_sampled else None
        self._record.frames.append(Frame(at=at, event=event, in_log=in_log))
