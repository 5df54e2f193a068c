"""One run from a client's side, with the times of its frames. The same for floor and Holdfast."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any
from uuid import uuid4

import aiohttp

SAY = "hello"
ADD = 'CALL add {"a": 2, "b": 3}'
ASK = 'CALL risky {"path": "/tmp/x"}'

_FRAME_END = b"\n\n"
_STREAM = {"accept": "text/event-stream"}


class Unexpected(Exception):
    """A run differs from its workload, so its figures are invalid."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds from a run's request to its first frame, first token and end."""

    first_frame: float
    first_token: float
    total: float
    tokens: int
    token_bytes: int
    """Bytes of the frames that carry text."""


@dataclass(frozen=True, slots=True)
class Load:
    """The timings of many runs."""

    timings: list[Timing]
    seconds: float

    def runs_per_second(self) -> float:
        return len(self.timings) / self.seconds

    def tokens_per_second(self) -> float:
        return sum(timing.tokens for timing in self.timings) / self.seconds

    def bytes_per_token(self) -> float:
        streamed = sum(timing.token_bytes for timing in self.timings)
        return streamed / sum(timing.tokens for timing in self.timings)

    def first_frame(self) -> float:
        return median(timing.first_frame for timing in self.timings)

    def first_token(self) -> float:
        return median(timing.first_token for timing in self.timings)


async def load(run: Callable[[], Awaitable[Timing]], *, runs: int, at_once: int) -> Load:
    """Measure `runs` runs, `at_once` of them at a time."""
    timings: list[Timing] = []
    left = iter(range(runs))

    async def one_after_another() -> None:
        for _ in left:
            timings.append(await run())

    began = time.perf_counter()
    async with asyncio.TaskGroup() as clients:
        for _ in range(at_once):
            clients.create_task(one_after_another())
    return Load(timings, time.perf_counter() - began)


class FloorClient:
    def __init__(self, http: aiohttp.ClientSession, base: str) -> None:
        self._http = http
        self.base = base

    async def run(self, model: str) -> Timing:
        watch = _Watch()
        async with self._http.post(self.base, json={"model": model}) as response:
            async for frame in _frames(response):
                watch.saw(frame)
        return watch.timing()

    async def short(self) -> Timing:
        return await self.run("fake-20")

    async def long(self) -> Timing:
        return await self.run("fake-5000")


class HoldfastClient:
    def __init__(self, http: aiohttp.ClientSession, base: str) -> None:
        self._http = http
        self.base = base

    async def short(self) -> Timing:
        return await self.turn(str(uuid4()), SAY)

    async def long(self) -> Timing:
        return await self.turn(str(uuid4()), SAY, agent="long")

    async def tool(self) -> Timing:
        return await self.turn(str(uuid4()), ADD)

    async def turn(self, thread_id: str, text: str, *, agent: str = "short") -> Timing:
        """One run on a thread, streamed to its natural end."""
        watch = _Watch()
        last = b"{}"
        url = f"{self.base}/v1/runs"
        start = start_request(agent, thread_id, text)
        async with self._http.post(url, json=start, headers=_STREAM) as response:
            async for frame in _frames(response):
                watch.saw(frame)
                last = frame
        _require_end(last, "natural_end")
        return watch.timing()

    async def approval(self) -> Timing:
        """A run with an approval, timed from its decision to its end."""
        run, cursor, last = await self.ask()
        watch = _Watch()
        await self._approve(run, last)
        url = f"{self.base}/v1/runs/{run}"
        end = b"{}"
        headers = {**_STREAM, "last-event-id": cursor}
        async with self._http.get(f"{url}/events", headers=headers) as response:
            async for frame in _frames(response):
                watch.saw(frame)
                end = frame
        _require_end(end, "natural_end")
        return watch.timing()

    async def ask(self) -> tuple[str, str, dict[str, Any]]:
        """Start a run that suspends; returns its id, the id of its last event, and that event."""
        last = b"{}"
        start = start_request("short", str(uuid4()), ASK)
        async with self._http.post(f"{self.base}/v1/runs", json=start, headers=_STREAM) as response:
            async for frame in _frames(response):
                last = frame
            run_id: str = response.headers["content-location"].rpartition("/")[2]
        cursor = last.partition(b"id: ")[2].partition(b"\n")[0].decode()
        return run_id, cursor, _require_end(last, "suspended")

    async def decision(self) -> float:
        """Seconds until the decision of a waiting run is answered. The run continues."""
        run, _, last = await self.ask()
        began = time.perf_counter()
        await self._approve(run, last)
        return time.perf_counter() - began

    async def _approve(self, run: str, finish: Mapping[str, Any]) -> None:
        decisions = [
            {"ticket_id": ticket["id"], "action": "approve"}
            for ticket in finish["waiting"]["tickets"]
        ]
        url = f"{self.base}/v1/runs/{run}/decisions"
        async with self._http.post(url, json={"decisions": decisions}) as response:
            _require_ok(response)

    async def suspend(self) -> str:
        """Start a run that suspends for an approval; returns its id when it waits."""
        start = start_request("short", str(uuid4()), ASK)
        async with self._http.post(
            f"{self.base}/v1/runs", json=start, headers={"prefer": "wait=30"}
        ) as response:
            _require_ok(response)
            run = await response.json()
        if run["status"] != "waiting":
            raise Unexpected(f"run {run['id']} is {run['status']}, not waiting")
        return str(run["id"])

    async def follow(self, run_id: str, opened: Callable[[], None]) -> None:
        """Follow a run without events, until cancelled."""
        url = f"{self.base}/v1/runs/{run_id}/events?from=now&follow=1"
        async with self._http.get(url, headers=_STREAM) as response:
            _require_ok(response)
            await response.content.readany()
            opened()
            async for _ in response.content.iter_any():
                pass
        raise Unexpected(f"the stream of waiting run {run_id} has ended")

    async def metrics(self) -> str:
        async with self._http.get(f"{self.base}/metrics") as response:
            _require_ok(response)
            text: str = await response.text()
            return text


class _Watch:
    """Records the time of the first frame, the first token and the end. Counts tokens in any framing."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._first_frame: float | None = None
        self._first_token: float | None = None
        self._tokens = 0
        self._token_bytes = 0

    def saw(self, frame: bytes) -> None:
        if self._first_frame is None:
            self._first_frame = time.perf_counter() - self._began
        if b'"text_delta"' in frame:
            self._tokens += frame.count(b"word ")
            self._token_bytes += len(frame) + len(_FRAME_END)
            if self._first_token is None:
                self._first_token = time.perf_counter() - self._began

    def timing(self) -> Timing:
        if self._first_frame is None or self._first_token is None:
            raise Unexpected("a stream ended without a token")
        total = time.perf_counter() - self._began
        return Timing(self._first_frame, self._first_token, total, self._tokens, self._token_bytes)


async def _frames(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The frames of a stream that carry data, as they arrive."""
    _require_ok(response)
    unfinished = b""
    async for chunk in response.content.iter_any():
        *frames, unfinished = (unfinished + chunk).split(_FRAME_END)
        for frame in frames:
            if b"data: " in frame:
                yield frame


def start_request(agent: str, thread_id: str, text: str) -> dict[str, Any]:
    return {
        "agent_id": agent,
        "thread_id": thread_id,
        "messages": [{"role": "user", "content": text}],
    }


def _require_ok(response: aiohttp.ClientResponse) -> None:
    if not response.ok:
        raise Unexpected(f"{response.method} {response.url.path} was answered {response.status}")


def _require_end(frame: bytes, termination: str) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(frame[frame.find(b"{") :])
    if (event.get("termination") or {}).get("type") != termination:
        raise Unexpected(f"a run's last event should tell of {termination}: {frame[:300]!r}")
    return event
