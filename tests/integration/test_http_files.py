"""Files over HTTP: upload, download by range, list, delete, and parts of messages that refer to them."""

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias
from uuid import uuid4

import asyncpg
import httpx2
import pytest

from app.domain.files.files import CHUNK_BYTES
from tests.support.conditions import eventually
from tests.support.problems import the_problem
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

Rows: TypeAlias = Callable[..., Awaitable[Any]]
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8
LONG = random.Random(3).randbytes(2 * CHUNK_BYTES + 1000)


@pytest.fixture
async def rows(served_database: str) -> AsyncIterator[Rows]:
    """Reads one value from the server's database."""
    connection = await asyncpg.connect(served_database)
    yield connection.fetchval
    await connection.close()


async def uploaded(client: Client, body: bytes = PNG, **headers: str) -> dict[str, Any]:
    named = {"Content-Type": "image/png", **{k.replace("_", "-"): v for k, v in headers.items()}}
    response = await client.http.post("/v1/files", content=body, headers=named)
    assert response.status_code == 201, response.text
    file: dict[str, Any] = response.json()
    assert response.headers["Location"] == f"/v1/files/{file['id']}"
    return file


def part(file_id: str, kind: str = "image") -> dict[str, Any]:
    return {"type": kind, "source": {"type": "file", "file_id": file_id}}


def body_with(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": "what is this?"}, *parts]
    return {"agent_id": "quick", "messages": [{"role": "user", "content": content}], **more}


async def test_an_uploaded_file_is_described_and_comes_back_byte_for_byte(client: Client) -> None:
    file = await uploaded(
        client, LONG, Content_Type="application/x-data", Content_Disposition='a; filename="r.bin"'
    )
    assert file["name"] == "r.bin"
    assert (file["media_type"], file["size"]) == ("application/x-data", len(LONG))
    assert file["sha256"] == hashlib.sha256(LONG).hexdigest()
    assert await client.get(f"/v1/files/{file['id']}") == file
    response = await client.http.get(f"/v1/files/{file['id']}/content")
    assert response.content == LONG
    assert response.headers["etag"] == f'"{file["sha256"]}"'
    assert response.headers["content-length"] == str(len(LONG))
    assert response.headers["content-disposition"] == "attachment; filename*=UTF-8''r.bin"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert "content-encoding" not in response.headers


@pytest.mark.parametrize(
    "range_, first, last",
    [
        ("bytes=0-0", 0, 0),
        ("bytes=5-", 5, len(LONG) - 1),
        ("bytes=-7", len(LONG) - 7, len(LONG) - 1),
        (f"bytes={CHUNK_BYTES - 1}-{CHUNK_BYTES}", CHUNK_BYTES - 1, CHUNK_BYTES),
        (f"bytes=1-{10**15}", 1, len(LONG) - 1),
    ],
)
async def test_a_range_is_served(client: Client, range_: str, first: int, last: int) -> None:
    file = await uploaded(client, LONG, Content_Type="application/x-data")
    address = f"/v1/files/{file['id']}/content"
    response = await client.http.get(address, headers={"Range": range_})
    assert response.status_code == 206
    assert response.content == LONG[first : last + 1]
    assert response.headers["content-range"] == f"bytes {first}-{last}/{len(LONG)}"
    head = await client.http.head(address, headers={"Range": range_})
    assert (head.status_code, head.content) == (206, b"")
    assert head.headers["content-length"] == str(last + 1 - first)


@pytest.mark.parametrize(
    "range_",
    ["bytes=99999-", "bytes=-0", "bytes=5-1", "lines=1-2", "bytes=1-2,4-5", "bytes=x", "7"],
)
async def test_a_range_that_isnt_one_is_ignored(client: Client, range_: str) -> None:
    file = await uploaded(client)
    response = await client.http.get(f"/v1/files/{file['id']}/content", headers={"Range": range_})
    assert (response.status_code, response.content) == (200, PNG)


async def test_a_file_that_a_client_has_is_not_sent_again(client: Client) -> None:
    file = await uploaded(client)
    response = await client.http.get(
        f"/v1/files/{file['id']}/content", headers={"If-None-Match": f'"{file["sha256"]}"'}
    )
    assert (response.status_code, response.content) == (304, b"")


async def test_equal_bytes_are_stored_once_also_if_they_arrive_at_the_same_time(
    client: Client, rows: Rows
) -> None:
    body = PNG + uuid4().bytes
    files = await asyncio.gather(*(uploaded(client, body) for _ in range(5)))
    assert len({file["id"] for file in files}) == 5
    assert await rows("SELECT count(*) FROM blobs WHERE sha256 = $1", files[0]["sha256"]) == 1


@pytest.mark.parametrize("html", [b"<script>alert(1)</script>", b"<svg xmlns='x' onload='a()'/>"])
async def test_pages_and_drawings_are_never_shown_by_a_browser(client: Client, html: bytes) -> None:
    for media_type in ("text/html", "image/svg+xml", "application/xhtml+xml"):
        file = await uploaded(client, html, Content_Type=media_type)
        response = await client.http.get(f"/v1/files/{file['id']}/content")
        assert response.headers["content-disposition"].startswith("attachment")
        assert response.headers["content-security-policy"].startswith("sandbox")


@pytest.mark.parametrize(
    "headers, body, code, status",
    [
        ({"Content-Type": "image/png"}, b"GIF89a...", "media_type_mismatch", 422),
        ({"Content-Type": "application/pdf"}, b"hello", "media_type_mismatch", 422),
        ({"Content-Type": "image/png"}, b"", "file_empty", 422),
        ({"Content-Type": "not a type"}, b"x", "invalid_request", 422),
        ({"Content-Type": "a/" + "b" * 200}, b"x", "invalid_request", 422),
        ({"Content-Type": "multipart/mixed; boundary=x"}, b"x", "unsupported_media_type", 415),
        ({"Content-Type": "multipart/form-data"}, b"x", "invalid_request", 422),
        ({"Content-Type": "multipart/form-data; boundary=x"}, b"x", "invalid_request", 422),
        (
            {"Content-Type": "multipart/form-data; boundary=" + "x" * 300},
            b"x",
            "invalid_request",
            422,
        ),
        ({"Content-Disposition": f'a; filename="{"x" * 300}"'}, b"x", "invalid_request", 422),
        ({"Content-Encoding": "gzip"}, b"x", "unsupported_media_type", 415),
        ({}, bytes(20_000_001), "body_too_large", 413),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_bad_upload_is_refused_and_leaves_nothing(
    client: Client, rows: Rows, headers: dict[str, str], body: bytes, code: str, status: int
) -> None:
    before = await rows("SELECT count(*) FROM blobs")
    response = await client.http.post("/v1/files", content=body, headers=headers)
    the_problem(response, status, code)
    assert await rows("SELECT count(*) FROM blobs") == before


async def test_an_upload_that_breaks_off_leaves_nothing_behind(client: Client, rows: Rows) -> None:
    """At 200 random places; each connection is cut, and the server deletes what it has written."""
    chance = random.Random(11)

    async def cut() -> None:
        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(chance.randint(0, 40)):
                yield LONG[: chance.randint(1, 40_000)]
            raise ConnectionError

        with pytest.raises(ConnectionError):
            await client.http.post("/v1/files", content=pieces())

    async def cut_form() -> None:
        whole, headers = form(("file", LONG, 'filename="a.bin"'))

        async def pieces() -> AsyncIterator[bytes]:
            yield whole[: chance.randrange(len(whole))]
            raise ConnectionError

        with pytest.raises(ConnectionError):
            await client.http.post("/v1/files", content=pieces(), headers=headers)

    for _ in range(20):
        await asyncio.gather(*(cut() for _ in range(7)), *(cut_form() for _ in range(3)))

    async def all_deleted() -> bool:
        """The server may still read the last uploads when their clients have gone."""
        unfinished = await rows("SELECT count(*) FROM blobs WHERE sha256 IS NULL")
        orphans = await rows(
            "SELECT count(*) FROM blob_chunks c "
            "WHERE NOT EXISTS (SELECT FROM files f WHERE f.blob_id = c.blob_id)"
        )
        return not unfinished and not orphans

    await eventually(all_deleted)


def form(*parts: tuple[str, bytes, str], boundary: str = "xX") -> tuple[bytes, dict[str, str]]:
    """A form whose parts have a name, bytes and more of their disposition."""
    body = b"".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; {more}\r\n\r\n'.encode()
        + data
        + b"\r\n"
        for name, data, more in parts
    )
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    return body + f"--{boundary}--\r\n".encode(), headers


async def test_a_file_can_be_uploaded_as_a_form(client: Client) -> None:
    tricky = LONG[:1000] + b"\r\n--xX" + b"\r\n--" + LONG
    file_part = ("Grüße & 2.bin", tricky, "application/x-data")
    for fields in ({}, {"purpose": "user_data"}):
        response = await client.http.post("/v1/files", files={"file": file_part}, data=fields)
        assert response.status_code == 201, response.text
        file = response.json()
        assert (file["name"], file["media_type"]) == ("Grüße & 2.bin", "application/x-data")
        assert file["sha256"] == hashlib.sha256(tricky).hexdigest()
    body, headers = form(("file", PNG, 'filename=""'))
    unnamed = (await client.http.post("/v1/files", content=body, headers=headers)).json()
    assert (unnamed["name"], unnamed["media_type"], unnamed["size"]) == (
        None,
        "image/png",
        len(PNG),
    )


async def test_a_form_arrives_in_pieces_of_any_size(client: Client) -> None:
    body, headers = form(("before", b"x" * 500, ""), ("file", PNG, 'filename="a.png"'))
    for size in (1, 7, 64):

        async def pieces(size: int = size) -> AsyncIterator[bytes]:
            for begin in range(0, len(body), size):
                yield body[begin : begin + size]

        response = await client.http.post("/v1/files", content=pieces(), headers=headers)
        assert response.status_code == 201, response.text
        assert response.json()["sha256"] == hashlib.sha256(PNG).hexdigest()


FORMS: dict[str, tuple[tuple[bytes, dict[str, str]], int, str]] = {
    "no file": (form(("file", PNG, "")), 422, "invalid_request"),
    "two files": (form(*[("file", LONG, 'filename="a"')] * 2), 422, "invalid_request"),
    "long fields": (form(("x", bytes(70_000), "")), 413, "body_too_large"),
    "a large file": (
        form(("file", bytes(20_000_001), 'filename="a"')),
        413,
        "body_too_large",
    ),
    "an empty file": (form(("file", b"", 'filename="a"')), 422, "file_empty"),
    "a long header": (form(("file", PNG, f'filename="{"x" * 9_000}"')), 422, "invalid_request"),
    "another type": (
        form(("file", PNG, 'filename="a"\r\nContent-Type: image/gif')),
        422,
        "media_type_mismatch",
    ),
    "no end": ((form(("file", LONG, 'filename="a"'))[0][:-10], form()[1]), 422, "invalid_request"),
}


@pytest.mark.parametrize("case", FORMS)
async def test_a_bad_form_is_refused_and_leaves_nothing(
    client: Client, rows: Rows, case: str
) -> None:
    (body, headers), status, code = FORMS[case]
    before = await rows("SELECT count(*) FROM blobs")
    response = await client.http.post("/v1/files", content=body, headers=headers)
    the_problem(response, status, code)
    assert await rows("SELECT count(*) FROM blobs") == before


async def test_a_message_refers_to_a_file_and_the_thread_lists_it(client: Client) -> None:
    file = await uploaded(client)
    run = await client.post("/v1/runs", body_with(part(file["id"])), 202)
    thread_id = (await client.settled(run["id"]))["thread_id"]
    [question, _] = (await client.get(f"/v1/threads/{thread_id}/messages"))["items"]
    assert question["content"][1] == part(file["id"])
    listed = await client.get("/v1/files", thread_id=thread_id)
    assert listed["items"] == [file]
    assert file["id"] in [each["id"] for each in (await client.get("/v1/files"))["items"]]


async def test_an_unknown_file_is_refused_before_anything_is_written(client: Client) -> None:
    thread_id = str(uuid4())
    for parts in (
        [part(str(uuid4()))],
        [part((await uploaded(client))["id"]), part(str(uuid4()))],
    ):
        response = await client.http.post("/v1/runs", json=body_with(*parts, thread_id=thread_id))
        the_problem(response, 404, "file_not_found")
        the_problem(await client.http.get(f"/v1/threads/{thread_id}"), 404, "thread_not_found")


async def test_a_part_has_the_type_of_its_file(client: Client) -> None:
    file = await uploaded(client)
    wrong = await client.http.post("/v1/runs", json=body_with(part(file["id"], "audio")))
    the_problem(wrong, 422, "media_type_mismatch")
    await client.post("/v1/runs", body_with(part(file["id"], "document")), 202)


async def test_a_file_is_deleted_with_the_last_thread_that_refers_to_it(client: Client) -> None:
    file = await uploaded(client)
    run = await client.settled(
        (await client.post("/v1/runs", body_with(part(file["id"])), 202))["id"]
    )
    copy = await client.post(f"/v1/threads/{run['thread_id']}/fork", {}, 201)
    for thread_id, is_there in ((run["thread_id"], True), (copy["id"], False)):
        deleted = await client.http.delete(
            f"/v1/threads/{thread_id}", params={"children": "detach"}
        )
        assert deleted.status_code == 204, deleted.text
        status = (await client.http.get(f"/v1/files/{file['id']}")).status_code
        assert status == (200 if is_there else 404)


async def test_a_deleted_file_is_gone_and_its_messages_stay(client: Client) -> None:
    file = await uploaded(client)
    run = await client.settled(
        (await client.post("/v1/runs", body_with(part(file["id"])), 202))["id"]
    )
    assert (await client.http.delete(f"/v1/files/{file['id']}")).status_code == 204
    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        gone = await client.http.request(method, f"/v1/files/{file['id']}{path}")
        the_problem(gone, 404, "file_not_found")
    [question, _] = (await client.get(f"/v1/threads/{run['thread_id']}/messages"))["items"]
    assert question["content"][1] == part(file["id"])
    again = await client.start("quick", "and now?", thread_id=run["thread_id"])
    assert (await client.settled(again["id"]))["outcome"] == "succeeded"


async def test_uploads_at_once_delay_no_other_request(client: Client) -> None:
    """Ten uploads of a megabyte are all stored while other requests are answered."""
    body = random.Random(5).randbytes(1_000_000)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(
                client.http.post(
                    "/v1/files", content=body + bytes([n]), headers={"Content-Type": "a/b"}
                )
            )
            for n in range(10)
        ]
        for _ in range(10):
            assert (await client.http.get("/v1/agents")).status_code == 200
    responses: list[httpx2.Response] = [task.result() for task in tasks]
    assert {response.status_code for response in responses} == {201}
