"""The head of a response and the beginning of its body are one write."""

import asyncio

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


@pytest.fixture
async def recorded() -> RecordedWrites:
    return RecordedWrites()


@pytest.fixture
async def response(recorded: RecordedWrites) -> JoinedHead:
    return JoinedHead(recorded, asyncio.get_running_loop())


async def test_a_head_is_written_with_the_beginning_of_its_body(
    response: JoinedHead, recorded: RecordedWrites
) -> None:
    response.write(b"head ")
    response.write(b"first")
    response.write(b"second")
    await sleep(0)
    assert recorded.writes == [b"head first", b"second"]


async def test_a_head_whose_body_comes_later_is_written_first(
    response: JoinedHead, recorded: RecordedWrites
) -> None:
    response.write(b"head")
    assert recorded.writes == []
    await sleep(0)
    response.write(b"body")
    assert recorded.writes == [b"head", b"body"]


async def test_a_head_is_written_before_the_connection_is_closed(
    response: JoinedHead, recorded: RecordedWrites
) -> None:
    response.write(b"head")
    response.close()
    await sleep(0)
    assert recorded.writes == [b"head"]
    assert response.is_closing()
