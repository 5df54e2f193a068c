"""The head of a response and the beginning of its body are one write."""

import asyncio
from typing import Any

import pytest

from app.clock import sleep
from app.http.joined_head import JoinedHead

pytestmark = pytest.mark.anyio


class RecordedWrites(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.is_closed = False

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        assert not self.is_closed
        self.writes.append(data)

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


class Response:
    """A response of the web server. It writes to its transport."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        joined: Any = JoinedHead(self, asyncio.get_running_loop())
        self.transport = joined


@pytest.fixture
async def recorded() -> RecordedWrites:
    return RecordedWrites()


@pytest.fixture
async def response(recorded: RecordedWrites) -> Response:
    return Response(recorded)


async def test_a_head_is_written_with_the_beginning_of_its_body(
    response: Response, recorded: RecordedWrites
) -> None:
    for part in (b"head ", b"first", b"second"):
        response.transport.write(part)
    await sleep(0)
    assert recorded.writes == [b"head first", b"second"]


async def test_a_head_whose_body_comes_later_is_written_first(
    response: Response, recorded: RecordedWrites
) -> None:
    response.transport.write(b"head")
    assert recorded.writes == []
    await sleep(0)
    response.transport.write(b"body")
    assert recorded.writes == [b"head", b"body"]


async def test_a_head_is_written_before_the_connection_is_closed(
    response: Response, recorded: RecordedWrites
) -> None:
    response.transport.write(b"head")
    response.transport.close()
    await sleep(0)
    assert recorded.writes == [b"head"]
    assert recorded.is_closed


async def test_a_connection_without_a_response_can_be_closed(
    response: Response, recorded: RecordedWrites
) -> None:
    response.transport.close()
    assert recorded.writes == []
    assert recorded.is_closed
