"""Who may do what over HTTP: keys, scopes, and a server without keys."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.domain.errors import ConfigurationError
from app.http.auth import load_authenticator, require_safe_address
from tests.integration.conftest import AGENTS
from tests.support.conditions import eventually
from tests.support.keys import Holder, write_keys
from tests.support.problems import the_problem
from tests.support.routes import UNKNOWN, Route, routes_of
from tests.support.rows import all_rows, nothing_is_queued
from tests.support.servers import Server, serving
from tests.support.streams import start_body
from tests.surface.raw_http import raw_http

pytestmark = pytest.mark.anyio

APPROVAL = 'CALL risky {"what": "it"}'
SCOPES_OF_KEYS = {
    "ann": Holder("acme", ["admin"]),
    "reader": Holder("acme", ["runs:read"]),
    "starter": Holder("acme", ["runs:write"]),
    "approver": Holder("acme", ["decisions:write"]),
    "sender": Holder("acme", ["signals:write"]),
    "accountant": Holder("acme", ["usage:read"]),
    "remembering": Holder("acme", ["memories:own"]),
    "server": Holder("acme", ["runs:context"]),
    "trusted": Holder("acme", ["runs:write", "runs:context"]),
    "no_scopes": Holder("acme", []),
}
SCOPES = {
    "reader": "runs:read",
    "starter": "runs:write",
    "approver": "decisions:write",
    "sender": "signals:write",
    "accountant": "usage:read",
    "remembering": "memories:own",
    "server": "runs:context",
    "no_scopes": None,
}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_keys(tmp_path_factory.mktemp("keys") / "keys.toml", SCOPES_OF_KEYS)


@pytest.fixture(scope="module")
async def server(served_database: str, keys: Path) -> AsyncIterator[Server]:
    async with serving(served_database, agents=AGENTS, api_keys_file=keys) as running:
        yield running


@pytest.fixture(scope="module")
async def waiting(server: Server, served_database: str) -> dict[str, Any]:
    """A run of Ann's that waits for an approval."""
    async with server.client("ann") as client:
        run = await client.settled((await client.start("quick", APPROVAL))["id"])
    await eventually(lambda: nothing_is_queued(served_database))
    return run


# --- keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer mallory"},
        {"Authorization": "ann"},
        {"Authorization": "Basic YW5uOmFubg=="},
        {"X-API-Key": "ann"},
    ],
    ids=str,
)
async def test_every_route_refuses_requests_without_a_valid_key(
    server: Server, waiting: dict[str, Any], served_database: str, headers: dict[str, str]
) -> None:
    before = await all_rows(served_database)
    ids = {"run_id": waiting["id"], "thread_id": waiting["thread_id"]}
    async with server.client() as client:
        for route in await routes_of(client):
            known = {**dict.fromkeys(route.ids, UNKNOWN), **ids}
            response = await route.ask(client, known, headers=headers)
            the_problem(response, 401, "unauthenticated")
            assert response.headers["www-authenticate"] == "Bearer"
    assert await all_rows(served_database) == before


async def test_the_openapi_document_shows_which_routes_need_a_key(server: Server) -> None:
    async with server.client() as client:
        document = await client.get("/openapi.json")
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                route = Route(method.upper(), path)
                response = await route.ask(client, dict.fromkeys(route.ids, UNKNOWN))
                ways = operation.get("security", [])
                assert (response.status_code == 401) is ({"api_key": []} in ways)
                takes_token = path.endswith(("/events", "/snapshot"))
                assert ({"stream_token": []} in ways) is takes_token
                assert {} not in ways


async def test_health_needs_no_key(server: Server) -> None:
    async with server.client() as client:
        for path in ("/health", "/health/live", "/metrics"):
            assert (await client.http.get(path)).status_code == 200


async def test_the_authorization_scheme_is_case_insensitive(server: Server) -> None:
    async with server.client() as client:
        response = await client.http.get("/v1/runs", headers={"Authorization": "bearer ann"})
        assert response.status_code == 200


# --- scopes ---------------------------------------------------------------------------------------


def scope_of(route: Route) -> str | None:
    if route.path == "/v1/me":
        return None
    revokes = route.method == "DELETE" and route.path.startswith("/v1/rules/")
    if route.path.endswith("/decisions") or revokes:
        return "decisions:write"
    if route.method == "POST" and route.path.startswith("/v1/mcp-servers/"):
        return "admin"
    if route.path == "/v1/usage":
        return "usage:read"
    if route.path.startswith(("/v1/memories", "/v1/memory-")):
        return "memories:own"
    if route.path == "/v1/signals":
        return "signals:write"
    reads = route.method == "GET" or route.path == "/v1/stream-tokens"
    return "runs:read" if reads else "runs:write"


@pytest.mark.parametrize("holder", SCOPES)
async def test_a_key_is_refused_on_routes_outside_its_scopes(
    server: Server, served_database: str, waiting: dict[str, Any], holder: str
) -> None:
    before = await all_rows(served_database)
    async with server.client(holder) as client:
        for route in await routes_of(client):
            scope = scope_of(route)
            if scope is None or scope == SCOPES[holder]:
                continue
            response = await route.ask(client, dict.fromkeys(route.ids, UNKNOWN))
            detail = the_problem(response, 403, "scope_missing")
            assert scope in detail["detail"]
    assert await all_rows(served_database) == before


@pytest.mark.parametrize("holder", [*SCOPES, "ann"])
async def test_one_scope_is_enough_for_its_routes(server: Server, holder: str) -> None:
    async with server.client(holder) as client:
        for route in await routes_of(client):
            if holder == "ann" or scope_of(route) == SCOPES[holder]:
                response = await route.ask(client, dict.fromkeys(route.ids, UNKNOWN))
                assert response.status_code in (200, 201, 202, 204, 404), route


async def test_a_context_needs_a_scope_of_its_own(server: Server, served_database: str) -> None:
    body = start_body("quick", "Hi.", context={"customer": 7})
    before = await all_rows(served_database)
    for holder, missing in {"starter": "runs:context", "server": "runs:write"}.items():
        async with server.client(holder) as client:
            detail = the_problem(
                await client.http.post("/v1/runs", json=body), 403, "scope_missing"
            )
            assert missing in detail["detail"]
            empty = {**body, "context": {}}
            assert (await client.http.post("/v1/runs", json=empty)).status_code == 403
    assert await all_rows(served_database) == before
    for holder in ("trusted", "ann"):
        async with server.client(holder) as client:
            assert (await client.http.post("/v1/runs", json=body)).status_code == 202


# --- without keys ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
async def keyless(served_database: str) -> AsyncIterator[Server]:
    async with serving(served_database, agents=AGENTS) as running:
        yield running


async def test_without_keys_only_programs_of_this_machine_are_allowed(keyless: Server) -> None:
    port = keyless.base.rpartition(":")[2]
    async with keyless.client() as client:
        for host in (f"localhost:{port}", f"127.0.0.1:{port}", "[::1]", "127.9.9.9"):
            allowed = await client.http.get("/v1/runs", headers={"Host": host})
            assert allowed.status_code == 200, host
        own = {"Origin": keyless.base}
        assert (await client.http.get("/v1/runs", headers=own)).status_code == 200
        for host in (
            "evil.example",
            "localhost.evil.example",
            "[",
            "",
            "10.0.0.1",
            "127.0.0.1.nip.io",
        ):
            refused = await client.http.get("/v1/runs", headers={"Host": host})
            the_problem(refused, 403, "host_not_allowed")
        for origin in (
            "https://evil.example",
            "null",
            "http://localhost:1",
            "127.0.0.1",
            "http://[",
            "",
        ):
            refused = await client.http.post(
                "/v1/runs", json=start_body("quick", "hello"), headers={"Origin": origin}
            )
            the_problem(refused, 403, "origin_not_allowed")
        assert (await client.get("/v1/runs"))["items"] == []


START = json.dumps(start_body("quick", "hello")).encode()
OWN, EVIL = "{own}", "evil.example"


@pytest.mark.parametrize(
    "target, headers, code",
    [
        ("/v1/runs", [f"Host: {OWN}", f"Host: {EVIL}"], "host_not_allowed"),
        ("/v1/runs", [f"Host: {EVIL}", f"Host: {OWN}"], "host_not_allowed"),
        ("/v1/runs", [f"Host: {OWN}", f"Host: {OWN}"], "host_not_allowed"),
        ("/v1/runs", ["Host: localhost@evil.example"], "host_not_allowed"),
        ("/v1/runs", ["Host: evil.example@localhost"], "host_not_allowed"),
        ("/v1/runs", ["Host: localhost/.evil.example"], "host_not_allowed"),
        ("/v1/runs", [], "host_not_allowed"),
        (f"http://{EVIL}/v1/runs", [f"Host: {OWN}"], "host_not_allowed"),
        (f"http://{OWN}/v1/runs", [f"Host: {OWN}"], "host_not_allowed"),
        (
            "/v1/runs",
            [f"Host: {OWN}", f"Origin: http://{OWN}", f"Origin: http://{EVIL}"],
            "origin_not_allowed",
        ),
        (
            "/v1/runs",
            [f"Host: {OWN}", f"Origin: http://{EVIL}", f"Origin: http://{OWN}"],
            "origin_not_allowed",
        ),
        ("/v1/runs", [f"Host: {OWN}", "Sec-Fetch-Site: cross-site"], "origin_not_allowed"),
        ("/v1/runs", [f"Host: {OWN}", "Sec-Fetch-Site: same-site"], "origin_not_allowed"),
        (
            "/v1/runs",
            [f"Host: {OWN}", "Sec-Fetch-Site: none", "Sec-Fetch-Site: cross-site"],
            "origin_not_allowed",
        ),
        (
            "/v1/runs",
            [f"Host: {OWN}", f"Origin: http://{OWN}", "Sec-Fetch-Site: cross-site"],
            "origin_not_allowed",
        ),
    ],
)
async def test_without_keys_a_web_page_cannot_hide_its_origin(
    keyless: Server, served_database: str, target: str, headers: list[str], code: str
) -> None:
    before = await all_rows(served_database)
    answer = await response_to(keyless, target, headers)
    assert answer.startswith(b"HTTP/1.1 403 "), answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == code
    assert await all_rows(served_database) == before


@pytest.mark.parametrize(
    "headers",
    [
        [f"Host: {OWN}"],
        [f"host: {OWN}", "User-Agent: curl/8.5.0", "Accept: */*"],
        [f"Host: {OWN}", f"Origin: http://{OWN}", "Sec-Fetch-Site: same-origin"],
        [f"Host: {OWN}", "Sec-Fetch-Site: same-origin", "Referer: http://{own}/docs"],
        [f"Host: {OWN}", "Sec-Fetch-Site: none"],
        ["Host: LOCALHOST", "Origin: http://localhost"],
    ],
)
async def test_without_keys_clients_of_this_machine_are_allowed(
    keyless: Server, headers: list[str]
) -> None:
    assert (await response_to(keyless, "/v1/runs", headers)).startswith(b"HTTP/1.1 202 ")


async def response_to(server: Server, target: str, headers: list[str]) -> bytes:
    """The response to a start with exactly these headers."""
    own = server.base.removeprefix("http://")
    lines = [
        f"POST {target} HTTP/1.1",
        *headers,
        "Content-Type: application/json",
        f"Content-Length: {len(START)}",
        "Connection: close",
    ]
    head = "".join(f"{line}\r\n" for line in lines).replace(OWN, own)
    async with raw_http(server.base) as connection:
        await connection.send(head.encode() + b"\r\n" + START)
        return await connection.read_all()


async def test_a_request_with_two_keys_is_refused(server: Server) -> None:
    async with server.client() as client:
        for both in (("ann", "reader"), ("reader", "ann"), ("ann", "ann")):
            headers = [("Authorization", f"Bearer {key}") for key in both]
            refused = await client.http.get("/v1/runs", headers=headers)
            the_problem(refused, 401, "unauthenticated")


async def test_an_open_address_without_keys_is_refused_at_start(served_database: str) -> None:
    with pytest.raises(AssertionError) as refused:
        async with serving(served_database, agents=AGENTS, host="0.0.0.0"):
            pass
    error_text = str(refused.value)
    assert (
        "Without API keys, every client that reaches 0.0.0.0 could start and approve runs"
        in error_text
    )
    assert "HOLDFAST_API_KEYS_FILE" in error_text
    assert "Traceback" not in error_text


@pytest.mark.parametrize("host", ["::", "192.0.2.1", "holdfast.example", ""])
def test_every_address_but_loopback_needs_keys(keys: Path, host: str) -> None:
    require_safe_address(host, load_authenticator(keys, None))
    with pytest.raises(ConfigurationError, match="Without API keys"):
        require_safe_address(host, load_authenticator(None, None))


@pytest.mark.parametrize(
    "text, detail",
    [
        ("[[keys]\n", "isn't valid TOML"),
        ('[[keys]]\nsubject = "ann"\n', "keys.0.tenant: Field required"),
        (
            '[[keys]]\nsubject = "ann"\ntenant = "acme"\nscopes = ["all"]\nsha256 = "00"\n',
            "keys.0.scopes",
        ),
        (None, "can't be read: No such file"),
    ],
)
def test_a_keys_file_that_cannot_be_used_is_named(
    tmp_path: Path, text: str | None, detail: str
) -> None:
    file = tmp_path / "keys.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        load_authenticator(file, None)
    assert str(file) in str(refused.value)
    assert detail in str(refused.value)
