"""A stopping process abandons open requests: unanswered ones get 503, others are cut."""

import asyncio
import json

import pytest
from starlette.types import Message, Receive, Scope, Send

from app.http.limits.abandoned_requests import AbandonedRequests
from app.http.request_log import RequestLog

pytestmark = pytest.mark.anyio


def scope() -> Scope:
    return {"type": "http", "method": "POST", "path": "/v1/runs", "headers": []}


async def abandoned_request(*sent_before: Message) -> list[Message]:
    """All messages that a client gets for a request that is cancelled while it waits."""
    waits, sent = asyncio.Event(), list[Message]()

    async def app(_: Scope, __: Receive, send: Send) -> None:
        for message in sent_before:
            await send(message)
        waits.set()
        await asyncio.Event().wait()

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    async with asyncio.TaskGroup() as requests:
        request = requests.create_task(RequestLog(AbandonedRequests(app))(scope(), receive, send))
        await waits.wait()
        request.cancel()
    assert request.cancelled()
    return sent


async def test_an_unanswered_request_gets_503_with_retry_after_when_the_server_stops() -> None:
    head, body = await abandoned_request()
    assert head["status"] == 503
    assert (b"retry-after", b"1") in head["headers"]
    assert json.loads(body["body"])["code"] == "draining"


async def test_a_response_that_has_begun_is_cut_when_the_server_stops() -> None:
    begun: Message = {"type": "http.response.start", "status": 200, "headers": []}
    [head] = await abandoned_request(begun)
    assert (head["type"], head["status"]) == ("http.response.start", 200)
