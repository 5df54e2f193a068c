"""A client of Holdfast as an application has one; its streams are read by the SSE parser of httpx2."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeAlias

import httpx2

from tests.support.event_order import check_heard, check_run, check_thread

PATIENCE = 30.0
"""Seconds until something that must happen counts as not happening, also on a busy machine."""

Event: TypeAlias = dict[str, Any]
EVENT_STREAM = {"Accept": "text/event-stream"}


class Stream:
    """Events as they arrive. Its end is clean, or `httpx2.RemoteProtocolError`: it was cut."""

    def __init__(
        self, response: httpx2.Response, source: AsyncGenerator[httpx2.ServerSentEvent]
    ) -> None:
        self.response = response
        self.heard: list[Event] = []
        self._source = source

    @property
    def last_id(self) -> str:
        return str(self.heard[-1]["seq"])

    async def next(self) -> Event | None:
        """The next event; None at a clean end."""
        async with asyncio.timeout(PATIENCE):
            async for sse in self._source:
                if sse.data:
                    event: Event = sse.json()  # type: ignore[assignment]  # our events are objects
                    assert sse.id == str(event["seq"])
                    self.heard.append(event)
                    return event
        return None

    async def until(self, event_type: str, count: int = 1) -> Event:
        """Listen until so many events of that type have been heard; the last of them."""
        while (event := await self.next()) is not None:
            count -= event["event_type"] == event_type
            if count == 0:
                return event
        raise AssertionError(f"no {event_type} among {types_of(self.heard)}")

    async def rest(self) -> list[Event]:
        """Everything until the clean end; all that was ever heard."""
        while await self.next() is not None:
            pass
        return self.heard


class Client:
    """Speaks to one server, with one key or none. All that it hears must be in a sound order."""

    def __init__(self, base: str, key: str | None = None) -> None:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self.http = httpx2.AsyncClient(base_url=base, headers=headers, timeout=PATIENCE)

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
        """Start a run and listen to it."""
        body = start_body(agent, prompt, **more)
        async with self._stream("POST", "/v1/runs", EVENT_STREAM, json=body) as stream:
            yield stream

    async def run(self, run_id: str, **params: Any) -> dict[str, Any]:
        return await self.get(f"/v1/runs/{run_id}", **params)

    async def settled(self, run_id: str) -> dict[str, Any]:
        """The run, once it is done or waits for somebody."""
        async with asyncio.timeout(PATIENCE):
            while (run := await self.run(run_id, wait=20))["status"] not in ("waiting", "done"):
                pass
        return run

    async def ended(self, run_id: str) -> dict[str, Any]:
        """The run, once it is done."""
        async with asyncio.timeout(PATIENCE):
            while (run := await self.settled(run_id))["status"] != "done":
                pass
        return run

    async def decide(self, run: Mapping[str, Any], action: str, **more: Any) -> dict[str, Any]:
        """Answer the run's first open ticket."""
        ticket = run["waiting"]["tickets"][0]["id"]
        body = {"decisions": [{"ticket_id": ticket, "action": action, **more}]}
        return await self.post(f"/v1/runs/{run['run_id']}/decisions", body)

    # --- events ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def events(
        self, path: str, *, last_id: str | None = None, **params: Any
    ) -> AsyncIterator[Stream]:
        """Follow `/v1/runs/…` or `/v1/threads/…`, after `last_id` when there is one."""
        headers = EVENT_STREAM | ({} if last_id is None else {"Last-Event-ID": last_id})
        async with self._stream("GET", f"{path}/events", headers, params=params) as stream:
            yield stream

    async def log(self, path: str) -> list[Event]:
        """The same events as the pages of a list."""
        events: list[Event] = []
        while True:
            after = events[-1]["seq"] if events else 0
            page = await self.get(f"{path}/events", after=after, limit=100)
            events += page["items"]
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
                check_heard(stream.heard)

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
    """What the assistant has said, for somebody who forgets what a reset voids."""
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
