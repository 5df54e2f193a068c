"""What a request is told that a stopping process gives up on."""

import asyncio
import json

import pytest
from starlette.types import Message, Receive, Scope, Send

from app.http.limits.abandoned_requests import AbandonedRequests

pytestmark = pytest.mark.anyio

SCOPE: Scope = {"type": "http", "method": "POST", "path": "/v1/runs", "headers": []}


async def given_up(*already_said: Message) -> list[Message]:
    """All that a client gets of a request that is cancelled while it waits."""
    waits, said = asyncio.Event(), list[Message]()

    async def app(_: Scope, __: Receive, send: Send) -> None:
        for message in already_said:
            await send(message)
        waits.set()
        await asyncio.Event().wait()

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        said.append(message)

    async with asyncio.TaskGroup() as requests:
        request = requests.create_task(AbandonedRequests(app)(SCOPE, receive, send))
        await waits.wait()
        request.cancel()
    assert request.cancelled()
    return said


async def test_it_is_told_to_come_again_elsewhere() -> None:
    head, body = await given_up()
    assert head["status"] == 503
    assert (b"retry-after", b"1") in head["headers"]
    assert json.loads(body["body"])["code"] == "draining"


async def test_an_answer_that_has_begun_is_cut() -> None:
    begun: Message = {"type": "http.response.start", "status": 200, "headers": []}
    assert await given_up(begun) == [begun]
