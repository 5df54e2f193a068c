"""Readers of streams as browsers are: cut as often as may be, they come back with their last id."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self

import asyncpg
import httpx2

from app.clock import sleep
from app.storage.postgres.database import DATABASE_UNAVAILABLE
from tests.journeys.chaos.history import Frame, Hearing

EVENT_STREAM = {"Accept": "text/event-stream"}
_SILENCE = 2.5
"""So long a reader hears nothing, not even a heartbeat, before it comes back by itself."""
_BETWEEN = 0.1
_TURNED_AWAY = frozenset({429, 503})


class Ways(Protocol):
    """How a client gets to a server: another way each time."""

    def way(self) -> str | None: ...


class Witness:
    """Asks the database itself, past all servers, whether what a client has just seen is in the log."""

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
        """None while there is nobody to ask."""
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
    """Listens to one run until it is told that there is no more, or to a thread until everything is over."""

    def __init__(
        self,
        hearing: Hearing,
        http: httpx2.AsyncClient,
        ways: Ways,
        witness: Witness,
        now: Callable[[], float],
    ) -> None:
        self._hearing = hearing
        self._http = http
        self._ways = ways
        self._witness = witness
        self._now = now

    async def follow(self, over: asyncio.Event | None = None) -> None:
        """Come back until the end. A thread has none: `over` tells when it is to be looked for."""
        while not self._hearing.ended:
            if (base := self._ways.way()) is not None:
                with suppress(httpx2.TransportError, TimeoutError):
                    if over is not None and over.is_set():
                        await self._look_for_more(base)
                    if not self._hearing.ended:
                        await self._connect(base, is_run=over is None)
            await sleep(_BETWEEN)

    @property
    def _cursor(self) -> int:
        return self._hearing.frames[-1].seq if self._hearing.frames else 0

    async def _look_for_more(self, base: str) -> None:
        url = f"{base}{self._hearing.path}/events?after={self._cursor}&limit=1"
        response = await self._http.get(url)
        self._hearing.ended = response.status_code == 200 and not response.json()["items"]

    async def _connect(self, base: str, *, is_run: bool) -> None:
        url = f"{base}{self._hearing.path}/events{'?follow=1' if is_run else ''}"
        last = {"Last-Event-ID": str(self._cursor)} if self._hearing.frames else {}
        async with self._http.stream("GET", url, headers=EVENT_STREAM | last) as response:
            if response.status_code == 200:
                await self.listen(response, until_done=is_run)
            elif response.status_code == 204:
                self._hearing.ended = True
            elif response.status_code not in _TURNED_AWAY:
                await response.aread()
                self._hearing.refusals.append({"status": response.status_code, "url": url})
                self._hearing.ended = True

    async def listen(self, response: httpx2.Response, *, until_done: bool) -> None:
        """Hear a stream to its clean end; when it is cut, that is an exception."""
        self._hearing.connections += 1
        source = aiter(httpx2.EventSource(response))
        while True:
            async with asyncio.timeout(_SILENCE):
                sse = await anext(source, None)
            if sse is None:
                break
            if sse.data:
                event: dict[str, Any] = sse.json()  # type: ignore[assignment]  # ours are objects
                await self._heard(sse.id, event)
        self._hearing.ended = until_done

    async def _heard(self, id: str | None, event: dict[str, Any]) -> None:
        at = self._now()
        if id != str(event["seq"]):
            self._hearing.refusals.append({"id": id, "of": event})
        is_sampled = event["event_type"] != "text_delta" or event["seq"] % 10 == 0
        in_log = await self._witness.sees(event["thread_id"], event["seq"]) if is_sampled else None
        self._hearing.frames.append(Frame(at=at, event=event, in_log=in_log))
