"""An HTTP client of Holdfast; the SSE parser of httpx2 reads its streams."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeAlias

import httpx2

from tests.support.envelopes import Envelope, untimed
from tests.support.event_order import check_received, check_run, check_thread

TIMEOUT_SECONDS = 60.0
"""Seconds until an expected event counts as missing, on a busy machine too."""

Event: TypeAlias = dict[str, Any]
EVENT_STREAM = {"Accept": "text/event-stream"}
WHOLE_LOG = {"include": "state,trace"}
"""Parameters for events as they are stored. The check of their order needs `state_snapshot`."""


class Stream:
    """Events as they arrive. A cut stream raises `httpx2.RemoteProtocolError`."""

    def __init__(
        self, response: httpx2.Response, source: AsyncGenerator[httpx2.ServerSentEvent]
    ) -> None:
        self.response = response
        self.received: list[Event] = []
        self._source = source
        self._envelope = Envelope()

    @property
    def last_id(self) -> str:
        return str(self.received[-1]["seq"])

    async def next(self) -> Event | None:
        """The next event; None at a clean end."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async for sse in self._source:
                if sse.data:
                    event = self._envelope.restore(sse.id, sse.data)
                    self.received.append(event)
                    return event
        return None

    async def until(self, event_type: str, count: int = 1) -> Event:
        """Read until `count` events of that type have arrived; returns the last one."""
        while (event := await self.next()) is not None:
            count -= event["event_type"] == event_type
            if count == 0:
                return event
        raise AssertionError(f"no {event_type} among {types_of(self.received)}")

    async def rest(self) -> list[Event]:
        """Read to the clean end; returns all received events."""
        while await self.next() is not None:
            pass
        return self.received


class Client:
    """Talks to one server, with one key or none, and checks the order of all events."""

    def __init__(self, base: str, key: str | None = None) -> None:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self.http = httpx2.AsyncClient(base_url=base, headers=headers, timeout=TIMEOUT_SECONDS)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    # --- runs -----------------------------------------------------------------------------------

    async def start(self, agent: str, prompt: str, **more: Any) -> dict[str, Any]:
        """Start a run; its record."""
        return await self.post("/v1/runs", start_body(agent, prompt, **more), 202)

    @asynccontextmanager
    async def start_stream(self, agent: str, prompt: str, **more: Any) -> AsyncIterator[Stream]:
        """Start a run and open its stream."""
        body = start_body(agent, prompt, **more)
        async with self._stream(
            "POST", "/v1/runs", EVENT_STREAM, json=body, params=WHOLE_LOG
        ) as stream:
            yield stream

    async def run(self, run_id: str, **params: Any) -> dict[str, Any]:
        return await self.get(f"/v1/runs/{run_id}", **params)

    async def settled(self, run_id: str) -> dict[str, Any]:
        """Wait until the run is done or waits; returns its record."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while (run := await self.run(run_id, wait=1))["status"] not in ("waiting", "done"):
                pass
        return run

    async def ended(self, run_id: str) -> dict[str, Any]:
        """Wait until the run is done; returns its record."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while (run := await self.run(run_id, wait=20))["status"] != "done":
                pass
        return run

    async def decide(self, run: Mapping[str, Any], action: str, **more: Any) -> dict[str, Any]:
        """Decide the run's first open ticket."""
        ticket = run["waiting"]["tickets"][0]["id"]
        body = {"decisions": [{"ticket_id": ticket, "action": action, **more}]}
        return await self.post(f"/v1/runs/{run['id']}/decisions", body)

    # --- events ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def events(
        self, path: str, *, last_id: str | None = None, **params: Any
    ) -> AsyncIterator[Stream]:
        """Follow `/v1/runs/…` or `/v1/threads/…`, after `last_id` if given."""
        headers = EVENT_STREAM | ({} if last_id is None else {"Last-Event-ID": last_id})
        if not path.endswith("/tickets"):
            params = WHOLE_LOG | params
        async with self._stream("GET", f"{path}/events", headers, params=params) as stream:
            yield stream

    async def log(self, path: str) -> list[Event]:
        """The same events, read as pages; `untimed`, so that they equal those of a stream."""
        events: list[Event] = []
        while True:
            after = events[-1]["seq"] if events else 0
            page = await self.get(f"{path}/events", cursor=after, limit=100, **WHOLE_LOG)
            events += map(untimed, page["items"])
            if not page["has_more"]:
                break
        check = check_thread if "/threads/" in path else check_run
        check(events)
        return events

    @asynccontextmanager
    async def _stream(
        self, method: str, path: str, headers: dict[str, str], **request: Any
    ) -> AsyncIterator[Stream]:
        async with self.http.stream(method, path, headers=headers, **request) as response:
            if response.status_code != 200:
                await response.aread()
            assert response.status_code == 200, response.text
            async with aclosing(_parsed(response)) as source:
                stream = Stream(response, source)
                yield stream
            if "types" not in request.get("params", {}):
                check_received(stream.received)

    # --- plain requests -------------------------------------------------------------------------

    async def get(self, path: str, **params: Any) -> dict[str, Any]:
        return _body(await self.http.get(path, params=params), 200)

    async def post(self, path: str, body: Any = None, status: int = 200) -> dict[str, Any]:
        return _body(await self.http.post(path, json=body), status)


def start_body(agent: str, prompt: str, **more: Any) -> dict[str, Any]:
    return {"agent_id": agent, "messages": [{"role": "user", "content": prompt}], **more}


def types_of(events: list[Event]) -> list[str]:
    return [event["event_type"] for event in events]


def text_of(events: list[Event]) -> str:
    """The assistant's text, without text that a reset voids."""
    text, step_began = "", 0
    for event in events:
        match event["event_type"]:
            case "step_start":
                step_began = len(text)
            case "stream_reset":
                text = text[:step_began]
            case "text_delta":
                text += event["delta"]
    return text


async def _parsed(response: httpx2.Response) -> AsyncGenerator[httpx2.ServerSentEvent]:
    async for sse in httpx2.EventSource(response):
        yield sse


def _body(response: httpx2.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    body: dict[str, Any] = response.json()
    return body
