"""Pages of other origins: preflights, CORS headers on every response, and what a server without keys takes."""

import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from app.domain.errors import ConfigurationError
from app.http.auth import load_authenticator
from app.http.origins.cors import EXPOSED_HEADERS
from app.http.origins.web_access import WebAccess, load_web_access
from tests.integration.conftest import AGENTS
from tests.support.conditions import eventually
from tests.support.keys import Holder, write_keys
from tests.support.problems import the_problem
from tests.support.routes import UNKNOWN, routes_of
from tests.support.rows import all_rows, no_run_executes
from tests.support.servers import Server, serving
from tests.support.streams import start_body
from tests.surface.raw_http import raw_http

pytestmark = pytest.mark.anyio

PAGE = "https://app.example.com"
LOCAL_PAGE = "http://localhost:3000"
CORS = ("access-control-", "vary")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_keys(tmp_path_factory.mktemp("keys") / "keys.toml", {"ann": Holder("acme")})


@pytest.fixture(scope="module")
async def server(served_database: str, keys: Path) -> AsyncIterator[Server]:
    """With keys, for two exact origins."""
    settings = {"api_keys_file": keys, "cors_origins": f"{PAGE}/, {LOCAL_PAGE}"}
    async with serving(served_database, agents=AGENTS, **settings) as running:
        yield running


@pytest.fixture(scope="module")
async def keyless(served_database: str) -> AsyncIterator[Server]:
    settings = {"cors_origins": LOCAL_PAGE, "allowed_hosts": "holdfast.test,*.app.github.dev"}
    async with serving(served_database, agents=AGENTS, **settings) as running:
        yield running


async def answer_to(server: Server, *lines: str, body: bytes = b"") -> tuple[int, dict[str, str]]:
    """Status and headers of the response to exactly these lines. Repeated headers are joined."""
    length = [f"Content-Length: {len(body)}"] if body else []
    head = "".join(f"{line}\r\n" for line in [*lines, *length, "Connection: close"])
    async with raw_http(server.base) as connection:
        await connection.send(head.replace("{own}", f"127.0.0.1:{server.port}").encode())
        await connection.send(b"\r\n" + body)
        received = (await connection.read_all()).partition(b"\r\n\r\n")[0].decode()
    status, *fields = received.split("\r\n")
    found: dict[str, str] = {}
    for name, _, value in (field.partition(": ") for field in fields):
        joined = [found[name.lower()]] if name.lower() in found else []
        found[name.lower()] = ", ".join([*joined, value])
    return int(status.split()[1]), found


def preflight(origin: str, method: str = "POST", path: str = "/v1/runs") -> list[str]:
    """What Chromium sends before a page of this origin starts a run with a key."""
    return [
        f"OPTIONS {path} HTTP/1.1",
        "Host: {own}",
        "Accept: */*",
        f"Access-Control-Request-Method: {method}",
        "Access-Control-Request-Headers: authorization,content-type,idempotency-key,prefer",
        f"Origin: {origin}",
        "Sec-Fetch-Mode: cors",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Dest: empty",
    ]


def cors_of(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith(CORS)}


async def test_a_preflight_of_an_allowed_origin_is_answered(server: Server) -> None:
    for origin in (PAGE, LOCAL_PAGE):
        status, headers = await answer_to(server, *preflight(origin))
        assert status == 204
        assert cors_of(headers) == {
            "access-control-allow-origin": origin,
            "access-control-allow-credentials": "true",
            "access-control-allow-methods": "DELETE, GET, HEAD, PATCH, POST, PUT",
            "access-control-allow-headers": "authorization,content-type,idempotency-key,prefer",
            "access-control-max-age": "600",
            "vary": "Origin, Access-Control-Request-Headers",
        }


async def test_a_preflight_allows_the_methods_and_headers_of_every_route(server: Server) -> None:
    async with server.client("ann") as client:
        routes = await routes_of(client)
    for route in routes:
        path = route.path.format(**dict.fromkeys(route.ids, UNKNOWN))
        status, headers = await answer_to(server, *preflight(PAGE, route.method, path))
        assert status == 204, route
        assert route.method in headers["access-control-allow-methods"].split(", "), route


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://app.example.com",
        "https://app.example.com:8443",
        "https://app.example.com.evil.example",
        "https://evil-app.example.com",
        "https://sub.app.example.com",
        "http://localhost:3001",
        "null",
        "",
    ],
)
async def test_an_origin_that_is_not_allowed_gets_no_cors_headers(
    server: Server, origin: str
) -> None:
    status, headers = await answer_to(server, *preflight(origin))
    assert status == 405
    assert cors_of(headers) == {"vary": "Origin"}
    for path in ("/v1/agents", "/v1/nothing", "/health"):
        _, headers = await answer_to(
            server,
            f"GET {path} HTTP/1.1",
            "Host: {own}",
            "Authorization: Bearer ann",
            f"Origin: {origin}",
        )
        assert cors_of(headers) == {"vary": "Origin"}


async def test_two_origins_in_one_request_get_no_cors_headers(server: Server) -> None:
    lines = [*preflight(PAGE), "Origin: https://evil.example"]
    assert cors_of((await answer_to(server, *lines))[1]) == {"vary": "Origin"}


async def test_a_preflight_does_not_repeat_malformed_header_names(server: Server) -> None:
    for names in ("authorization;x", "a b", "é", ",", "x" * 3000):
        lines = [
            line
            if not line.startswith("Access-Control-Request-Headers")
            else f"Access-Control-Request-Headers: {names}"
            for line in preflight(PAGE)
        ]
        status, headers = await answer_to(server, *lines)
        assert status == 204
        assert "access-control-allow-headers" not in headers


async def test_streams_answers_and_errors_have_the_headers_of_their_origin(server: Server) -> None:
    wanted = {
        "access-control-allow-origin": PAGE,
        "access-control-allow-credentials": "true",
        "access-control-expose-headers": ", ".join(EXPOSED_HEADERS),
        "vary": "Origin",
    }
    key = "Authorization: Bearer ann"
    start = ["POST /v1/runs HTTP/1.1", "Content-Type: application/json"]
    body = json.dumps(start_body("quick", "hello")).encode()
    requests: list[tuple[int, list[str], bytes]] = [
        (202, [*start, key], body),
        (200, [*start, key, "Accept: text/event-stream"], body),
        (401, start, body),
        (422, [*start, key], b"{}"),
        (400, [*start, key], b"{"),
        (413, [*start, key], b'"' + b"x" * 2_000_001 + b'"'),
        (415, ["POST /v1/runs HTTP/1.1", key, "Content-Encoding: br"], b"x"),
        (405, ["PUT /v1/runs HTTP/1.1", key], b""),
        (404, [f"GET /v1/runs/{UNKNOWN} HTTP/1.1", key], b""),
        (404, ["GET /nothing HTTP/1.1", key], b""),
        (200, ["GET /health HTTP/1.1"], b""),
    ]
    for expected, lines, content in requests:
        status, headers = await answer_to(
            server, *lines, "Host: {own}", f"Origin: {PAGE}", body=content
        )
        assert status == expected, lines
        assert cors_of(headers) == wanted, lines


async def test_a_page_can_read_every_header_that_a_response_has(server: Server) -> None:
    """The headers that the API document and the answers show are exposed or always readable."""
    always = {"content-type", "content-length", "cache-control", "date", "connection", "vary"}
    never_needed = {"transfer-encoding", "x-accel-buffering"}
    exposed = {name.lower() for name in EXPOSED_HEADERS}
    start = ["POST /v1/runs HTTP/1.1", "Content-Type: application/json", "Idempotency-Key: once"]
    body = json.dumps(start_body("quick", "hello")).encode()
    for extra in ([], [], ["Accept: text/event-stream"]):
        _, headers = await answer_to(
            server,
            *start,
            *extra,
            "Host: {own}",
            "Authorization: Bearer ann",
            f"Origin: {PAGE}",
            body=body,
        )
        others = headers.keys() - always - never_needed - exposed
        assert {name for name in others if not name.startswith("access-control-")} == set()


async def test_without_the_setting_no_origin_gets_cors_headers(served_database: str) -> None:
    async with serving(served_database, agents=AGENTS) as plain:
        status, headers = await answer_to(plain, *preflight(PAGE))
        assert (status, cors_of(headers)) == (405, {})
        lines = ["GET /v1/agents HTTP/1.1", "Host: {own}"]
        assert cors_of((await answer_to(plain, *lines))[1]) == {}


async def test_a_star_allows_every_origin_without_credentials(
    served_database: str, keys: Path
) -> None:
    settings = {"api_keys_file": keys, "cors_origins": "*"}
    async with serving(served_database, agents=AGENTS, **settings) as server:
        for origin in ("https://evil.example", "null"):
            status, headers = await answer_to(server, *preflight(origin))
            assert status == 204
            assert headers["access-control-allow-origin"] == "*"
            assert "access-control-allow-credentials" not in headers
            lines = ["GET /v1/agents HTTP/1.1", "Host: {own}", "Authorization: Bearer ann"]
            status, headers = await answer_to(server, *lines, f"Origin: {origin}")
            assert (status, headers["access-control-allow-origin"]) == (200, "*")
            assert "access-control-allow-credentials" not in headers


# --- without keys ---------------------------------------------------------------------------------


async def test_without_keys_a_page_of_an_allowed_origin_may_start_runs(keyless: Server) -> None:
    body = json.dumps(start_body("quick", "hello")).encode()
    for site in ("cross-site", "same-site"):
        status, headers = await answer_to(
            keyless,
            "POST /v1/runs HTTP/1.1",
            "Host: {own}",
            f"Origin: {LOCAL_PAGE}",
            f"Sec-Fetch-Site: {site}",
            "Content-Type: application/json",
            body=body,
        )
        assert status == 202
        assert headers["access-control-allow-origin"] == LOCAL_PAGE


@pytest.mark.parametrize(
    "headers, code",
    [
        (["Host: {own}", f"Origin: {PAGE}"], "origin_not_allowed"),
        (["Host: {own}", "Origin: null"], "origin_not_allowed"),
        (["Host: {own}", f"Origin: {LOCAL_PAGE}", f"Origin: {PAGE}"], "origin_not_allowed"),
        (["Host: {own}", "Sec-Fetch-Site: cross-site"], "origin_not_allowed"),
        (["Host: {own}", "Origin: https://other.app.github.dev"], "origin_not_allowed"),
        (
            ["Host: {own}", "Origin: https://a.app.github.dev", "Sec-Fetch-Site: cross-site"],
            "origin_not_allowed",
        ),
        (
            ["Host: {own}", "Origin: https://evil.example", "Sec-Fetch-Site: same-origin"],
            "origin_not_allowed",
        ),
        (["Host: evil.example", f"Origin: {LOCAL_PAGE}"], "host_not_allowed"),
        (["Host: app.github.dev"], "host_not_allowed"),
        (["Host: evil-app.github.dev"], "host_not_allowed"),
        (["Host: sub.holdfast.test"], "host_not_allowed"),
        (["Host: holdfast.test", "Host: holdfast.test"], "host_not_allowed"),
    ],
)
async def test_without_keys_other_pages_and_hosts_stay_refused(
    keyless: Server, served_database: str, headers: list[str], code: str
) -> None:
    await eventually(partial(no_run_executes, served_database))
    before = await all_rows(served_database)
    body = json.dumps(start_body("quick", "hello")).encode()
    lines = ["POST /v1/runs HTTP/1.1", *headers, "Content-Type: application/json"]
    assert (await answer_to(keyless, *lines, body=body))[0] == 403
    async with raw_http(keyless.base) as connection:
        head = "".join(f"{line}\r\n" for line in ["GET /v1/runs HTTP/1.1", *headers])
        own = f"127.0.0.1:{keyless.port}"
        await connection.send((head + "Connection: close\r\n\r\n").replace("{own}", own).encode())
        problem = json.loads((await connection.read_all()).partition(b"\r\n\r\n")[2])
    assert problem["code"] == code
    setting = "HOLDFAST_ALLOWED_HOSTS" if code == "host_not_allowed" else "HOLDFAST_CORS_ORIGINS"
    assert setting in problem["detail"]
    assert await all_rows(served_database) == before


@pytest.mark.parametrize(
    "headers",
    [
        ["Host: holdfast.test"],
        ["Host: HOLDFAST.test:8443"],
        ["Host: holdfast.test", "Origin: https://holdfast.test", "Sec-Fetch-Site: same-origin"],
        ["Host: curly-space-8000.app.github.dev"],
        # A forwarded port: the proxy has changed `Host`, the browser compared the origins.
        [
            "Host: {own}",
            "Origin: https://curly-space-8000.app.github.dev",
            "Sec-Fetch-Site: same-origin",
        ],
    ],
)
async def test_a_server_is_reached_by_the_host_names_of_the_setting(
    keyless: Server, headers: list[str]
) -> None:
    assert (await answer_to(keyless, "GET /v1/runs HTTP/1.1", *headers))[0] == 200


async def test_with_keys_other_hosts_are_refused_only_if_the_setting_names_some(
    served_database: str, keys: Path, server: Server
) -> None:
    lines = ["GET /v1/runs HTTP/1.1", "Authorization: Bearer ann"]
    assert (await answer_to(server, *lines, "Host: any.example"))[0] == 200
    settings = {"api_keys_file": keys, "allowed_hosts": "holdfast.test"}
    async with serving(served_database, agents=AGENTS, **settings) as bound:
        for host, status in (("holdfast.test", 200), ("{own}", 200), ("any.example", 403)):
            assert (await answer_to(bound, *lines, f"Host: {host}"))[0] == status
        async with bound.client("ann") as client:
            refused = await client.http.get("/v1/runs", headers={"Host": "any.example"})
            the_problem(refused, 403, "host_not_allowed")


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "origins, hosts, sentence",
    [
        ("app.example.com", None, "app.example.com isn't an origin"),
        ("https://app.example.com/path", None, "isn't an origin"),
        ("https://*.example.com", None, "isn't an origin"),
        ("null", None, "null isn't an origin"),
        ("*,https://app.example.com", None, "allows every origin"),
        (None, "http://holdfast.test", "HOLDFAST_ALLOWED_HOSTS: http://holdfast.test isn't"),
        (None, "holdfast.test:8000", "without scheme and port"),
        (None, "*", "isn't a host name"),
        (None, "holdfast.*", "isn't a host name"),
    ],
)
def test_a_wrong_entry_is_named_with_its_remedy(
    origins: str | None, hosts: str | None, sentence: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_web_access(origins, hosts)
    assert sentence in str(refused.value)


def test_origins_are_compared_as_browsers_write_them() -> None:
    found = load_web_access("HTTPS://App.Example.com:443/, http://[::1]:80,http://x:8080,", " ")
    assert found == WebAccess(
        frozenset({"https://app.example.com", "http://[::1]", "http://x:8080"})
    )


def test_every_origin_is_never_allowed_without_keys(keys: Path) -> None:
    anyone = load_web_access("*", None)
    load_authenticator(keys, None, anyone)
    with pytest.raises(ConfigurationError, match="needs API keys"):
        load_authenticator(None, None, anyone)
