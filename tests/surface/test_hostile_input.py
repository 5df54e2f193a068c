"""Hostile input is refused without a change and without a request to another server."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.listeners import listening
from tests.support.problems import the_problem
from tests.support.routes import BODIES, HEADERS
from tests.support.rows import all_rows
from tests.support.servers import Server
from tests.support.streams import Client, start_body
from tests.surface.conftest import OURS
from tests.surface.document import LABELS, declares
from tests.surface.examples import generated

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

JSON = {"Content-Type": "application/json"}


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with server.client(OURS) as ours:
        yield ours


# --- bodies ---------------------------------------------------------------------------------------


def start(**more: Any) -> bytes:
    return json.dumps(start_body("quick", "hello", **more)).encode()


BOMB = gzip.compress(b" " * 50_000_000)


@pytest.mark.parametrize(
    "encoding", ["gzip", "deflate", "br", "zstd", "gzip, gzip", "identity, br"]
)
async def test_a_compressed_body_is_refused(
    client: Client, served_database: str, encoding: str
) -> None:
    before = await all_rows(served_database)
    headers = {**JSON, "Content-Encoding": encoding}
    response = await client.http.post("/v1/runs", content=BOMB, headers=headers)
    the_problem(response, 415, "unsupported_media_type")
    assert await all_rows(served_database) == before


@pytest.mark.parametrize(
    "body",
    [
        start()[:-1] + b', "agent_id": "talker"}',
        start()[:-1] + rb', "agent\u005fid": "talker"}',
        start(metadata={"a": 1}).replace(b'{"a": 1}', b'{"a": 1, "a": 1}'),
        b'{"decisions": [{"ticket_id": "c1", "action": "reject", "action": "approve"}]}',
    ],
    ids=["field", "spelled otherwise", "nested", "decision"],
)
async def test_a_repeated_field_is_refused(
    client: Client, served_database: str, body: bytes
) -> None:
    path = f"/v1/runs/{uuid4()}/decisions" if b"decisions" in body else "/v1/runs"
    before = await all_rows(served_database)
    response = await client.http.post(path, content=body, headers=JSON)
    problem = the_problem(response, 400, "malformed_body")
    assert "twice" in problem["detail"]
    assert await all_rows(served_database) == before


async def test_a_field_under_two_names_is_refused(client: Client, served_database: str) -> None:
    before = await all_rows(served_database)
    response = await client.http.post("/v1/runs", json=start_body("quick", "x", agentId="talker"))
    the_problem(response, 422, "invalid_request")
    assert await all_rows(served_database) == before


WITH_JSON_BODIES = [one for one in LABELS if not one.startswith("GET ") and one != "POST /v1/files"]
"""An upload takes any bytes."""


@pytest.mark.parametrize("label", WITH_JSON_BODIES)
async def test_deep_nesting_and_large_numbers_are_refused_everywhere(
    client: Client, served_database: str, label: str
) -> None:
    method, _, path = label.partition(" ")
    address = path.format_map(_Ids())
    before = await all_rows(served_database)
    for body in (
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"metadata": {"a": ' + b"9" * 100_000 + b"}}",
        b'{"metadata": {"a": 1e999999, "b": -Infinity, "c": NaN}}',
        b'"\xff\xfe"',
    ):
        headers = {**JSON, **HEADERS.get((method, path), {})}
        response = await client.http.request(method, address, content=body, headers=headers)
        assert 400 <= response.status_code < 500, (body[:50], response.text)
        the_problem(response, response.status_code, response.json()["code"])
    assert await all_rows(served_database) == before


class _Ids(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return str(uuid4())


# --- references -----------------------------------------------------------------------------------


@asynccontextmanager
async def a_listener() -> AsyncIterator[tuple[str, list[str]]]:
    """A listener that records its connections."""
    connections: list[str] = []

    async def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(str(writer.get_extra_info("peername")))

    async with listening(note) as port:
        yield f"http://127.0.0.1:{port}", connections


def remote_references(url: str) -> dict[str, dict[str, Any]]:
    return {
        "reference": {"$ref": f"{url}/a"},
        "deep reference": {"properties": {"a": {"items": {"anyOf": [{"$ref": f"{url}/a#/b"}]}}}},
        "name of its own": {"$id": f"{url}/a", "properties": {"a": {"$ref": "b"}}},
        "dynamic reference": {"properties": {"a": {"$dynamicRef": f"{url}/a#b"}}},
        "meta-schema": {"$schema": f"{url}/meta"},
        "without a scheme": {"$ref": url.removeprefix("http:")},
        "file": {"$ref": "file:///etc/passwd"},
        "definition": {"$defs": {"a": {"$ref": f"{url}/a"}}, "$ref": "#/$defs/a"},
    }


@pytest.mark.parametrize("what", remote_references(""))
async def test_no_schema_makes_the_server_fetch_a_url(
    client: Client, served_database: str, what: str
) -> None:
    before = await all_rows(served_database)
    async with a_listener() as (url, connections):
        tools = [{"name": "show", "parameters": remote_references(url)[what]}]
        response = await client.http.post(
            "/v1/runs", json=start_body("quick", "hello", frontend_tools=tools)
        )
        problem = the_problem(response, 422, "schema_unsupported")
        assert "root:" not in problem["detail"]
        assert connections == []
    assert await all_rows(served_database) == before


async def test_no_url_in_a_message_is_fetched(client: Client) -> None:
    async with a_listener() as (url, connections):
        picture = {"type": "image", "source": {"type": "url", "url": f"{url}/a.png"}}
        body = {"agent_id": "quick", "messages": [{"role": "user", "content": [picture]}]}
        run = await client.post("/v1/runs", body, 202)
        await client.settled(run["id"])
        assert connections == []


# --- ids, cursors, headers ------------------------------------------------------------------------

HOSTILE_IDS = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        [
            "..",
            "../../etc/passwd",
            "%00",
            "null",
            "0",
            "-1",
            "NaN",
            "' OR 1=1 --",
            "{}",
            "${jndi:ldap://x}",
            "00000000-0000-7000-8000-000000000000\n",
            "urn:uuid:00000000-0000-7000-8000-000000000000",
            "00000000000070008000000000000000",
            "\ud800",
            "\u2028",
            "\U0010ffff",
            "x" * 5000,
            "eyJxIjoiIn0",
            "W10",
            "9" * 40,
            "١",
        ]
    ),
)


def percent(text: str) -> str:
    """The text as one segment of a path: clients would resolve dots that aren't escaped."""
    return quote(text.encode("utf-8", "surrogatepass"), safe="").replace(".", "%2E")


@pytest.mark.parametrize("label", [one for one in LABELS if "{" in one])
async def test_every_malformed_id_is_refused(
    server: Server, served_database: str, label: str
) -> None:
    method, _, path = label.partition(" ")

    def ask_all() -> None:
        with httpx2.Client(
            base_url=server.base, headers={"Authorization": f"Bearer {OURS}"}
        ) as http:

            @generated
            @given(
                id=HOSTILE_IDS,
                query=HOSTILE_IDS,
                header=st.text(st.characters(max_codepoint=255), max_size=40),
            )
            def ask(id: str, query: str, header: str) -> None:
                names = path.replace("{", "\0").replace("}", "\0").split("\0")
                address = "".join(
                    part if at % 2 == 0 else percent(id) or "x" for at, part in enumerate(names)
                )
                request = http.build_request(
                    method,
                    f"{address}?cursor={percent(query)}&limit=1",
                    json=BODIES.get((method, path)),
                    headers={b"Last-Event-ID": _sendable(header), b"If-Match": _sendable(header)},
                )
                response = http.send(request)
                assert response.status_code in range(400, 500), response.text
                problem = response.json()
                assert problem["status"] == response.status_code
                assert problem["code"] in ("not_found", "method_not_allowed") or declares(
                    method, path, response.status_code, problem["code"]
                )

            ask()

    before = await all_rows(served_database)
    await asyncio.to_thread(ask_all)
    assert await all_rows(served_database) == before


def _sendable(text: str) -> bytes:
    """The part of a text that a client can send in a header."""
    return "".join(char for char in text if char.isprintable()).strip().encode("latin-1")
