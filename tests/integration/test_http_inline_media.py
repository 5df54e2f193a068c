"""Large media within messages become files: the log has references, and what is refused leaves nothing."""

from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any, TypeAlias
from uuid import uuid4

import asyncpg
import pytest

from tests.support.problems import the_problem
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

Rows: TypeAlias = Callable[..., Awaitable[Any]]
SMALL = b"\x89PNG\r\n\x1a\n small"
STORED = "SELECT (SELECT count(*) FROM blobs) + (SELECT count(*) FROM files)"


@pytest.fixture
async def rows(served_database: str) -> AsyncIterator[Rows]:
    """Reads one value from the server's database."""
    connection = await asyncpg.connect(served_database)
    yield connection.fetchval
    await connection.close()


@pytest.fixture
def large() -> bytes:
    """An image of its own, whose base64 has more than 65,536 characters."""
    return b"\x89PNG\r\n\x1a\n" + Random(uuid4().int).randbytes(300_000)


def image(data: bytes, **more: Any) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "image/png", "data": b64encode(data).decode()}
    return {"type": "image", "source": source, **more}


def message(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": "what is this?"}, *parts], **more}


def start(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"agent_id": "quick", "messages": list(messages), **more}


async def test_large_media_become_a_file_and_small_ones_stay(client: Client, large: bytes) -> None:
    body = start(
        message(image(large, title="chart.png"), image(SMALL), image(large, title="chart.png"))
    )
    run = await client.post("/v1/runs", body, 202)
    thread_id = (await client.settled(run["id"]))["thread_id"]
    [question, _] = (await client.get(f"/v1/threads/{thread_id}/messages"))["items"]
    _, first, small, again = question["content"]
    assert small == image(SMALL)
    assert first == again
    assert (first["type"], first["title"], first["source"]["type"]) == (
        "image",
        "chart.png",
        "file",
    )
    [file] = (await client.get("/v1/files", thread_id=thread_id))["items"]
    assert (file["id"], file["name"], file["size"]) == (
        first["source"]["file_id"],
        "chart.png",
        len(large),
    )
    assert (await client.http.get(f"/v1/files/{file['id']}/content")).content == large


async def test_equal_media_of_several_messages_are_one_file(client: Client, large: bytes) -> None:
    started = [await client.post("/v1/runs", start(message(image(large))), 202) for _ in range(2)]
    threads = [(await client.settled(run["id"]))["thread_id"] for run in started]
    found = [(await client.get("/v1/files", thread_id=each))["items"] for each in threads]
    assert found[0] == found[1]
    assert len(found[0]) == 1
    for thread_id, left in zip(threads, (200, 404), strict=True):
        await client.http.delete(f"/v1/threads/{thread_id}")
        assert (await client.http.get(f"/v1/files/{found[0][0]['id']}")).status_code == left


async def test_a_repeated_message_with_media_is_recognised(client: Client, large: bytes) -> None:
    sent = message(image(large), id=str(uuid4()))
    first = await client.post("/v1/runs", start(sent), 202)
    thread_id = (await client.settled(first["id"]))["thread_id"]
    again = await client.post("/v1/runs", start(sent, thread_id=thread_id), 202)
    assert again["id"] == first["id"]
    other = message(image(large[:-1]), id=sent["id"])
    refused = await client.http.post("/v1/runs", json=start(other, thread_id=thread_id))
    the_problem(refused, 409, "message_id_conflict")


async def test_media_of_messages_to_a_thread_become_files(client: Client, large: bytes) -> None:
    run = await client.settled((await client.post("/v1/runs", start(message()), 202))["id"])
    path = f"/v1/threads/{run['thread_id']}/messages"
    await client.post(path, {"messages": [message(image(large))], "mode": "queue"}, 202)
    [file] = (await client.get("/v1/files", thread_id=run["thread_id"]))["items"]
    assert file["size"] == len(large)


async def test_a_refused_message_leaves_nothing(client: Client, rows: Rows, large: bytes) -> None:
    before = await rows(STORED)
    for body, status, code in (
        (start(message(image(large)), agent_id="unknown"), 404, "agent_not_found"),
        (start(message(image(b"GIF89a" + large))), 422, "media_type_mismatch"),
        (start(message({**image(large), "type": "audio"})), 422, "media_type_mismatch"),
        (
            start(message(image(large)), thread_id=str(uuid4()), if_thread_missing="reject"),
            404,
            "thread_not_found",
        ),
    ):
        the_problem(await client.http.post("/v1/runs", json=body), status, code)
    assert await rows(STORED) == before


async def test_a_repeated_request_has_its_media_once(client: Client, large: bytes) -> None:
    headers = {"Idempotency-Key": str(uuid4())}
    body = start(message(image(large)))
    answers = [await client.http.post("/v1/runs", json=body, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json()["id"] == answers[1].json()["id"]
