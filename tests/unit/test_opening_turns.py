"""Streams that open take turns. Other requests need none."""

import asyncio
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from app.clock import yield_to_loop
from app.http.limits import opening_turns
from app.http.limits.opening_turns import AT_ONCE, OpeningTurns

pytestmark = pytest.mark.anyio

STREAM = [(b"accept", b"text/event-stream")]


class Opening:
    """An application whose responses begin when the test says so, and then stay open."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Event] = []
        self.opened = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        may_open = asyncio.Event()
        self.waiting.append(may_open)
        await may_open.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        self.opened += 1
        await asyncio.Event().wait()


def request(method: str = "GET", headers: list[tuple[bytes, bytes]] | None = None) -> Scope:
    return {"type": "http", "method": method, "headers": STREAM if headers is None else headers}


async def receive() -> Message:
    raise AssertionError("these applications read nothing")


async def send(message: Message) -> None:
    assert message["type"] == "http.response.start"


async def settle() -> None:
    for _ in range(5):
        await yield_to_loop()


async def test_the_next_stream_opens_when_the_response_of_another_has_begun() -> None:
    app = Opening()
    turns = OpeningTurns(app)
    async with asyncio.TaskGroup() as clients:
        tasks = [
            clients.create_task(turns(request(), receive, send)) for _ in range(2 * AT_ONCE + 1)
        ]
        await settle()
        assert len(app.waiting) == AT_ONCE
        app.waiting[0].set()
        await settle()
        assert (app.opened, len(app.waiting)) == (1, AT_ONCE + 1)
        for task in tasks:
            task.cancel()


async def test_a_client_that_leaves_gives_its_turn_to_the_next() -> None:
    app = Opening()
    turns = OpeningTurns(app)
    async with asyncio.TaskGroup() as clients:
        tasks = [clients.create_task(turns(request(), receive, send)) for _ in range(AT_ONCE + 2)]
        await settle()
        tasks[-1].cancel()
        tasks[0].cancel()
        await settle()
        assert len(app.waiting) == AT_ONCE + 1
        for task in tasks:
            task.cancel()


@pytest.mark.parametrize(("method", "headers"), [("POST", STREAM), ("GET", [])])
async def test_starts_and_other_reads_need_no_turn(
    method: str, headers: list[tuple[bytes, bytes]]
) -> None:
    app = Opening()
    turns = OpeningTurns(app)
    async with asyncio.TaskGroup() as clients:
        tasks = [
            clients.create_task(turns(request(method, headers), receive, send))
            for _ in range(AT_ONCE + 1)
        ]
        await settle()
        assert len(app.waiting) == AT_ONCE + 1
        for task in tasks:
            task.cancel()


async def test_a_stream_that_takes_long_delays_the_next_one_only_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opening_turns, "TURN_SECONDS", 0.01)
    app = Opening()
    turns = OpeningTurns(app)
    tasks: list[asyncio.Task[Any]] = []
    async with asyncio.timeout(5), asyncio.TaskGroup() as clients:
        tasks += [clients.create_task(turns(request(), receive, send)) for _ in range(2 * AT_ONCE)]
        while len(app.waiting) < 2 * AT_ONCE:
            await yield_to_loop()
        for task in tasks:
            task.cancel()
