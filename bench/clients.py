"""One run as a client meets it: what is sent, and when its answers came. The same for floor and ours."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from statistics import median
from typing import Any
from uuid import uuid4

import aiohttp

SAY = "hello"
ADD = 'CALL add {"a": 2, "b": 3}'
ASK = 'CALL risky {"path": "/tmp/x"}'

_STREAM = {"accept": "text/event-stream"}


class Unexpected(Exception):
    """A run went otherwise than its workload says: the figures would mean nothing."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Of one run, in seconds from its request: its first frame, its first token, its end."""

    first_frame: float
    first_token: float
    total: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Load:
    """What many runs came to."""

    timings: list[Timing]
    seconds: float

    def runs_per_second(self) -> float:
        return len(self.timings) / self.seconds

    def tokens_per_second(self) -> float:
        return sum(timing.tokens for timing in self.timings) / self.seconds

    def first_frame(self) -> float:
        return median(timing.first_frame for timing in self.timings)

    def first_token(self) -> float:
        return median(timing.first_token for timing in self.timings)


async def load(run: Callable[[], Awaitable[Timing]], *, runs: int, at_once: int) -> Load:
    """So many runs, so many of them at a time."""
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
        self._base = base

    async def run(self, model: str) -> Timing:
        watch = _Watch()
        async with self._http.post(self._base, json={"model": model}) as response:
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
        self._base = base

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
        url = f"{self._base}/v1/runs"
        start = _start(agent, thread_id, text)
        async with self._http.post(url, json=start, headers=_STREAM) as response:
            async for frame in _frames(response):
                watch.saw(frame)
                last = frame
        _require_end(last, "natural_end")
        return watch.timing()

    async def approval(self) -> Timing:
        """A run that asks, the answer, and its end; timed from the decision on."""
        last = await self._ask()
        run, cursor = last["run_id"], str(last["seq"])
        decisions = [
            {"ticket_id": ticket["ticket_id"], "action": "approve"}
            for ticket in last["waiting"]["tickets"]
        ]
        watch = _Watch()
        url = f"{self._base}/v1/runs/{run}"
        async with self._http.post(f"{url}/decisions", json={"decisions": decisions}) as response:
            _require_ok(response)
        end = b"{}"
        headers = {**_STREAM, "last-event-id": cursor}
        async with self._http.get(f"{url}/events", headers=headers) as response:
            async for frame in _frames(response):
                watch.saw(frame)
                end = frame
        _require_end(end, "natural_end")
        return watch.timing()

    async def _ask(self) -> dict[str, Any]:
        last = b"{}"
        start = _start("short", str(uuid4()), ASK)
        async with self._http.post(
            f"{self._base}/v1/runs", json=start, headers=_STREAM
        ) as response:
            async for frame in _frames(response):
                last = frame
        return _require_end(last, "suspended")

    async def suspend(self) -> str:
        """Start a run that comes to wait for a person; returns its id once it does."""
        start = _start("short", str(uuid4()), ASK)
        async with self._http.post(
            f"{self._base}/v1/runs", json=start, headers={"prefer": "wait=30"}
        ) as response:
            _require_ok(response)
            run = await response.json()
        if run["status"] != "waiting":
            raise Unexpected(f"run {run['run_id']} is {run['status']}, not waiting")
        return str(run["run_id"])

    async def follow(self, run_id: str, opened: Callable[[], None]) -> None:
        """Listen to a run that says nothing, until cancelled."""
        url = f"{self._base}/v1/runs/{run_id}/events?from=now&follow=1"
        async with self._http.get(url, headers=_STREAM) as response:
            _require_ok(response)
            await response.content.readany()
            opened()
            async for _ in response.content.iter_any():
                pass
        raise Unexpected(f"the stream of waiting run {run_id} has ended")

    async def metrics(self) -> str:
        async with self._http.get(f"{self._base}/metrics") as response:
            _require_ok(response)
            return await response.text()


class _Watch:
    """Reads the clock when what matters is seen. Tokens are counted, however many share a frame."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._first_frame: float | None = None
        self._first_token: float | None = None
        self._tokens = 0

    def saw(self, frame: bytes) -> None:
        if self._first_frame is None:
            self._first_frame = time.perf_counter() - self._began
        if b'"text_delta"' in frame:
            self._tokens += frame.count(b"word ")
            if self._first_token is None:
                self._first_token = time.perf_counter() - self._began

    def timing(self) -> Timing:
        if self._first_frame is None or self._first_token is None:
            raise Unexpected("a stream ended without a token")
        total = time.perf_counter() - self._began
        return Timing(self._first_frame, self._first_token, total, self._tokens)


async def _frames(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The frames of a stream that carry data, as they arrive."""
    _require_ok(response)
    rest = b""
    async for chunk in response.content.iter_any():
        *frames, rest = (rest + chunk).split(b"\n\n")
        for frame in frames:
            if b"data: " in frame:
                yield frame


def _start(agent: str, thread_id: str, text: str) -> dict[str, Any]:
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
