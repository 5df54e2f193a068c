"""Bodies that can't be read: too large, not text, not JSON, or of another media type."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.problems import the_problem
from tests.support.rows import all_rows
from tests.support.streams import Client, start_body

pytestmark = pytest.mark.anyio

MALFORMED, INVALID = "400 malformed_body", "422 invalid_request"
TOO_LARGE = "413 body_too_large"
JSON = {"Content-Type": "application/json"}


def start(**more: Any) -> bytes:
    return json.dumps(start_body("quick", "hello", **more)).encode()


FIVE_MB = start(metadata={"a": "x" * 5_000_000})


def with_metadata(raw: bytes) -> bytes:
    """A valid start request, except for its metadata."""
    return start(metadata={"here": 0}).replace(b'"here": 0', b'"here": ' + raw)


UNREADABLE = {
    "not JSON": (b"agent_id=quick", MALFORMED),
    "half of it": (start()[:-5], MALFORMED),
    "two of it": (start() + start(), MALFORMED),
    "nothing": (b"", INVALID),
    "null": (b"null", INVALID),
    "a list": (b"[" + start() + b"]", INVALID),
    "a text": (b'"hello"', INVALID),
    "invalid UTF-8": (start().replace(b"hello", b"h\xffllo"), MALFORMED),
    "UTF-8 of a surrogate": (start().replace(b"hello", b"h\xed\xa0\xbdllo"), INVALID),
    "Latin-1": (start().replace(b"hello", "hällo".encode("latin-1")), MALFORMED),
    "escaped surrogate": (start().replace(b"hello", rb"h\ud83dllo"), INVALID),
    "escaped U+0000": (start().replace(b"hello", rb"h\u0000llo"), INVALID),
    "raw U+0000": (start().replace(b"hello", b"h\0llo"), MALFORMED),
    "NaN": (with_metadata(b"NaN"), INVALID),
    "endless number": (with_metadata(b"1e999"), INVALID),
    "number of 5000 digits": (with_metadata(b"9" * 5000), INVALID),
    "60 levels": (with_metadata(b"[" * 60 + b"]" * 60), INVALID),
    "900 levels": (with_metadata(b'{"a":' * 900 + b"1" + b"}" * 900), INVALID),
    "10,000 levels": (with_metadata(b"[" * 10_000 + b"]" * 10_000), MALFORMED),
    "100,000 levels": (with_metadata(b"[" * 100_000 + b"]" * 100_000), TOO_LARGE),
    "open without end": (b"[" * 100_000, TOO_LARGE),
    "100,000 numbers": (with_metadata(b"[" + b"0," * 100_000 + b"0]"), TOO_LARGE),
    "100,000 unknown fields": (
        b"{" + b",".join(b'"%d":0' % name for name in range(100_000)) + b"}",
        TOO_LARGE,
    ),
    "101 fields": (start(**{f"field_{number}": 0 for number in range(99)}), INVALID),
    "UTF-16": (start().decode().encode("utf-16"), MALFORMED),
}


@pytest.mark.parametrize("content_kind", UNREADABLE)
async def test_a_body_that_cannot_be_read_changes_nothing(
    client: Client, served_database: str, content_kind: str
) -> None:
    content, refusal = UNREADABLE[content_kind]
    before = await all_rows(served_database)
    response = await client.http.post("/v1/runs", content=content, headers=JSON)
    status, code = refusal.split()
    the_problem(response, int(status), code)
    assert await all_rows(served_database) == before


@pytest.mark.parametrize(
    "media_type", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""]
)
@pytest.mark.parametrize("path", ["/v1/runs", "/v1/threads", "/v1/stream-tokens"])
async def test_a_body_of_another_kind_changes_nothing(
    client: Client, served_database: str, path: str, media_type: str
) -> None:
    before = await all_rows(served_database)
    headers = {"Content-Type": media_type} if media_type else {}
    response = await client.http.post(path, content=start(), headers=headers)
    the_problem(response, 415, "unsupported_media_type")
    assert await all_rows(served_database) == before


async def in_pieces(body: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(body), 65_536):
        yield body[at : at + 65_536]


async def test_a_declared_length_of_five_megabytes_is_refused_before_the_body_is_sent(
    client: Client, served_database: str
) -> None:
    before = await all_rows(served_database)
    response = await client.http.post("/v1/runs", content=FIVE_MB, headers=JSON)
    assert response.request.headers["content-length"] == str(len(FIVE_MB))
    the_problem(response, 413, "body_too_large")
    assert await all_rows(served_database) == before


async def test_five_megabytes_of_unknown_length_are_refused(
    client: Client, served_database: str
) -> None:
    before = await all_rows(served_database)
    response = await client.http.post("/v1/runs", content=in_pieces(FIVE_MB), headers=JSON)
    assert response.request.headers["transfer-encoding"] == "chunked"
    the_problem(response, 413, "body_too_large")
    assert await all_rows(served_database) == before


@pytest.mark.parametrize("media_type", ["application/json; charset=utf-8", "application/a+json"])
async def test_text_of_any_script_is_stored_unchanged(client: Client, media_type: str) -> None:
    text = "ä 漢字 👩\u200d🚀 \u2028 \u0007 \ufffd"
    body = json.dumps(start_body("quick", text), ensure_ascii=False).encode()
    response = await client.http.post(
        "/v1/runs", content=body, headers={"Content-Type": media_type}
    )
    assert response.status_code == 202
    run = await client.settled(response.json()["id"])
    messages = await client.get(f"/v1/threads/{run['thread_id']}/messages")
    assert messages["items"][0]["content"] == [{"type": "text", "text": text}]
    assert text in run["final_output"]


async def test_the_server_still_answers(client: Client) -> None:
    run = await client.start("quick", "after all that")
    assert (await client.settled(run["id"]))["outcome"] == "succeeded"
