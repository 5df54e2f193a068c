"""Errors explain themselves: a page for each code, and a suggestion for a misspelt name."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.http.error_codes import CODES, CODES_BEFORE_ROUTES
from app.http.error_help.pages import remedies
from tests.integration.conftest import AGENTS
from tests.support.keys import Holder, write_keys
from tests.support.problems import the_problem
from tests.support.routes import UNKNOWN
from tests.support.servers import Server, serving
from tests.support.streams import Client, start_body
from tests.surface.raw_http import raw_http

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def server(
    served_database: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    keys = write_keys(tmp_path_factory.mktemp("keys") / "keys.toml", {"ann": Holder("acme")})
    async with serving(served_database, agents=AGENTS, api_keys_file=keys) as running:
        yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with server.client("ann") as opened:
        yield opened


# --- pages ----------------------------------------------------------------------------------------


async def test_the_type_of_an_error_is_the_address_of_its_page(
    server: Server, client: Client
) -> None:
    refused = await client.http.get(f"/v1/runs/{UNKNOWN}")
    problem = the_problem(refused, 404, "run_not_found")
    async with server.client() as anyone:
        page = await anyone.http.get(str(refused.url.join(problem["type"])))
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "<h1><code>run_not_found</code></h1>" in page.text
    assert "Check the id, and that the key belongs to the run's tenant." in page.text


async def test_every_code_has_a_page_that_needs_neither_a_key_nor_another_host(
    server: Server,
) -> None:
    async with server.client() as anyone:
        index = (await anyone.http.get("/problems")).text
        for code, (status, _) in {**CODES, **CODES_BEFORE_ROUTES}.items():
            assert f'href="/problems/{code}"' in index
            page = await anyone.http.get(f"/problems/{code}")
            assert (page.status_code, f"Status {status}:" in page.text) == (200, True), code
            assert "://" not in page.text
            assert "](" not in page.text
            assert "`" not in page.text
            assert (await anyone.http.head(f"/problems/{code}")).status_code == 200


async def test_an_unknown_code_has_no_page(server: Server) -> None:
    async with server.client() as anyone:
        for code in ("nothing", "%3Cscript%3E", "..%2Fv1", "x" * 1000):
            refused = await anyone.http.get(f"/problems/{code}")
            assert (refused.status_code, refused.json()["type"]) == (404, "/problems/not_found")
            assert "<script>" not in refused.text


async def test_a_malformed_request_names_the_page_of_its_error(server: Server) -> None:
    async with raw_http(server.base) as connection:
        await connection.send(b"NOT HTTP\r\n\r\n")
        problem = json.loads((await connection.read_all()).partition(b"\r\n\r\n")[2])
    assert problem["type"] == "/problems/malformed_request"
    assert "error" not in problem


def test_every_remedy_is_a_sentence() -> None:
    for code, text in remedies().items():
        assert text[0].isupper(), code
        assert text.endswith("."), code


# --- suggestions ----------------------------------------------------------------------------------

MESSAGE = {"role": "user", "content": "hello"}
START = start_body("quick", "hello")


@pytest.mark.parametrize(
    "path, body, at, meant",
    [
        ("/v1/runs", {**START, "mesages": []}, "body.mesages", "messages"),
        ("/v1/runs", {**START, "agentId": "x"}, "body.agentId", "agent_id"),
        ("/v1/runs", {**START, "threadId": UNKNOWN}, "body.threadId", "thread_id"),
        ("/v1/threads", {"resourceId": "x"}, "body.resourceId", "resource_id"),
        ("/v1/runs", {**START, "OnActive": "x"}, "body.OnActive", "on_active"),
        (
            "/v1/runs",
            {**START, "messages": [MESSAGE, {**MESSAGE, "contents": "x"}]},
            "body.messages.1.contents",
            "content",
        ),
        (
            "/v1/runs",
            {
                **START,
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "x", "txt": 1}]}
                ],
            },
            "body.messages.0.content.parts.0.text.txt",
            "text",
        ),
        (
            "/v1/runs",
            {**START, "frontend_tools": [{"name": "x", "descripton": "x"}]},
            "body.frontend_tools.0.descripton",
            "description",
        ),
        ("/v1/threads", {"titel": "x"}, "body.titel", "title"),
        (
            f"/v1/runs/{UNKNOWN}/decisions",
            {"decisions": [{"ticket_id": UNKNOWN, "action": "approve", "reasn": "x"}]},
            "body.decisions.0.reasn",
            "reason",
        ),
        (f"/v1/runs/{UNKNOWN}/cancel", {"resaon": "x"}, "body.resaon", "reason"),
    ],
)
async def test_an_unknown_field_is_refused_with_the_name_that_it_may_mean(
    client: Client, path: str, body: dict[str, Any], at: str, meant: str
) -> None:
    problem = the_problem(await client.http.post(path, json=body), 422, "invalid_request")
    found = {one["at"]: one["problem"] for one in problem["errors"]}
    assert found[at] == f"unknown field; did you mean {meant}?"


@pytest.mark.parametrize(
    "path, parameter, meant",
    [
        ("/v1/runs", "limt", "limit"),
        ("/v1/runs", "Status", "status"),
        ("/v1/runs", "threadId", "thread_id"),
        (f"/v1/runs/{UNKNOWN}", "includes", "include"),
        (f"/v1/runs/{UNKNOWN}/events", "folow", "follow"),
        ("/v1/tickets", "statuses", "status"),
    ],
)
async def test_an_unknown_parameter_is_refused_with_the_name_that_it_may_mean(
    client: Client, path: str, parameter: str, meant: str
) -> None:
    refused = await client.http.get(path, params={parameter: "1"})
    problem = the_problem(refused, 422, "invalid_request")
    expected = f"unknown parameter; did you mean {meant}?"
    assert problem["errors"] == [{"at": f"query.{parameter}", "problem": expected}]
    assert "This operation takes" in problem["detail"]


async def test_a_name_that_resembles_none_gets_no_suggestion(client: Client) -> None:
    refused = await client.http.post("/v1/runs", json={**START, "xyzzy": 1})
    problem = the_problem(refused, 422, "invalid_request")
    assert problem["detail"] == "body.xyzzy: unknown field; check its spelling, or remove it"
    refused = await client.http.get("/v1/runs", params={"xyzzy": "1"})
    problem = the_problem(refused, 422, "invalid_request")
    assert problem["detail"].startswith("query.xyzzy: unknown parameter. This operation takes ")


async def test_few_and_only_short_names_get_suggestions(client: Client) -> None:
    """Comparing names takes long, so what a request can ask for is limited."""
    for names, count in (("messages{}", 5), ("messages" + "s" * 50 + "{}", 0)):
        body = {**START, **{names.format(number): 1 for number in range(80)}}
        problem = the_problem(await client.http.post("/v1/runs", json=body), 422, "invalid_request")
        assert len(problem["errors"]) == 20
        assert sum("did you mean" in one["problem"] for one in problem["errors"]) == count
