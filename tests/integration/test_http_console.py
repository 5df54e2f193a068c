"""The console over HTTP: pages, built files, sign-in, and requests that must not count."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.console import built_console
from tests.support.keys import Holder, write_keys
from tests.support.problems import the_problem
from tests.support.servers import Server, serving
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture(scope="module")
def keys_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built_console()
    holders = {"ann": Holder("acme"), "reader": Holder("acme", ["runs:read"])}
    return write_keys(tmp_path_factory.mktemp("keys") / "keys.toml", holders)


@pytest.fixture
async def server(database_url: str, keys_file: Path) -> AsyncIterator[Server]:
    async with serving(database_url, api_keys_file=keys_file) as server:
        yield server


def page_headers(server: Server, **more: str) -> dict[str, str]:
    """What a browser sends with requests of one of our pages."""
    return {"Sec-Fetch-Site": "same-origin", "Origin": server.base, **more}


async def signed_in(server: Server, client: Client, key: str = "ann") -> str:
    """Sign in; the header `Cookie` of later requests."""
    answer = await client.http.post(
        "/console/session", json={"api_key": key}, headers=page_headers(server)
    )
    assert answer.status_code == 204, answer.text
    cookie = answer.headers["Set-Cookie"]
    assert "; HttpOnly; SameSite=Strict" in cookie
    client.http.cookies.clear()
    return str(cookie.partition(";")[0])


async def test_a_browser_is_led_to_the_console_and_a_terminal_is_not(server: Server) -> None:
    async with server.client() as client:
        first = await client.http.get("/", headers=BROWSER)
        assert (first.status_code, first.headers["Location"]) == (307, "console/")
        second = await client.http.get("/console/", headers=BROWSER)
        assert (second.status_code, second.headers["Location"]) == (307, "inbox")
        assert "This server runs LLM agents" in (await client.http.get("/")).text


async def test_pages_and_their_files_need_no_key(server: Server) -> None:
    async with server.client() as client:
        for path in ("/console/inbox", "/console/tickets/some-id", "/console/login"):
            page = await client.http.get(path)
            assert page.status_code == 200
            assert "trusted-types 'none'" in page.headers["Content-Security-Policy"]
            assert page.headers["Cache-Control"] == "no-cache"
        [style] = [part for part in page.text.split('"') if part.endswith(".css")]
        plain = await client.http.get(style, headers={"Accept-Encoding": "identity"})
        packed = await client.http.get(style, headers={"Accept-Encoding": "gzip"})
        assert packed.headers["Content-Encoding"] == "gzip"
        assert "Content-Encoding" not in plain.headers
        assert packed.content == plain.content
        assert "immutable" in packed.headers["Cache-Control"]
        assert packed.headers["X-Content-Type-Options"] == "nosniff"
        for path in ("none.js", "manifest.json", "..%2f__init__.py"):
            assert (await client.http.get(f"/console/assets/{path}")).status_code == 404


async def test_a_session_acts_as_its_key(server: Server) -> None:
    async with server.client() as client:
        cookie = await signed_in(server, client)
        headers = page_headers(server, Cookie=cookie)
        me = (await client.http.get("/v1/me", headers=headers)).json()
        assert (me["subject"], me["tenant"], me["is_keyless"]) == ("ann", "acme", False)
        assert (await client.http.get("/v1/tickets", headers=headers)).status_code == 200


async def test_the_scopes_of_the_key_stay(server: Server) -> None:
    async with server.client() as client:
        headers = page_headers(server, Cookie=await signed_in(server, client, "reader"))
        started = await client.http.post("/v1/runs", json={}, headers=headers)
        the_problem(started, 403, "scope_missing")


@pytest.mark.parametrize(
    "changed",
    [
        {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": ""},
    ],
    ids=str,
)
async def test_a_cookie_does_not_count_for_requests_of_other_pages(
    server: Server, changed: dict[str, str]
) -> None:
    async with server.client() as client:
        cookie = await signed_in(server, client)
        headers = page_headers(server, Cookie=cookie) | changed
        the_problem(await client.http.get("/v1/me", headers=headers), 401, "unauthenticated")
        refused = await client.http.post(
            "/console/session", json={"api_key": "ann"}, headers=headers
        )
        the_problem(refused, 403, "console_session_refused")
        left = await client.http.request("DELETE", "/console/session", headers=headers)
        the_problem(left, 403, "console_session_refused")


async def test_a_wrong_key_gets_no_session(server: Server) -> None:
    async with server.client() as client:
        for key in ("nobody", "é", " "):
            answer = await client.http.post(
                "/console/session", json={"api_key": key}, headers=page_headers(server)
            )
            the_problem(answer, 401, "unauthenticated")
            assert "Set-Cookie" not in answer.headers


async def test_a_key_is_not_taken_over_unencrypted_http(server: Server) -> None:
    headers = {"Host": "holdfast.example", "Origin": "http://holdfast.example"}
    async with server.client() as client:
        answer = await client.http.post(
            "/console/session", json={"api_key": "ann"}, headers=page_headers(server) | headers
        )
        the_problem(answer, 403, "console_needs_https")
        encrypted = await client.http.post(
            "/console/session",
            json={"api_key": "ann"},
            headers=page_headers(server) | headers | {"Origin": "https://holdfast.example"},
        )
        assert encrypted.headers["Set-Cookie"].startswith("__Host-holdfast=")


async def test_an_api_key_wins_over_a_session(server: Server) -> None:
    async with server.client() as client:
        headers = page_headers(server, Cookie=await signed_in(server, client))
        wrong = await client.http.get("/v1/me", headers={**headers, "Authorization": "Bearer no"})
        the_problem(wrong, 401, "unauthenticated")
        other = await client.http.get(
            "/v1/me", headers={**headers, "Authorization": "Bearer reader"}
        )
        assert other.json()["subject"] == "reader"


async def test_signing_out_makes_the_browser_forget_the_cookie(server: Server) -> None:
    async with server.client() as client:
        answer = await client.http.request(
            "DELETE", "/console/session", headers=page_headers(server)
        )
        assert answer.status_code == 204
        assert "; Max-Age=0; " in answer.headers["Set-Cookie"]


async def test_removing_a_key_ends_its_sessions(
    database_url: str, keys_file: Path, tmp_path: Path
) -> None:
    async with serving(database_url, api_keys_file=keys_file) as server, server.client() as client:
        cookie = await signed_in(server, client)
        port = server.port
    fewer = write_keys(tmp_path / "keys.toml", {"reader": Holder("acme")})
    settings = {"api_keys_file": fewer, "port": port}
    async with serving(database_url, **settings) as server, server.client() as client:
        headers = page_headers(server, Cookie=cookie)
        the_problem(await client.http.get("/v1/me", headers=headers), 401, "unauthenticated")


async def test_without_keys_no_session_is_needed(database_url: str) -> None:
    built_console()
    async with serving(database_url) as server, server.client() as client:
        me = (await client.http.get("/v1/me")).json()
        assert (me["subject"], me["is_keyless"], me["public_url"]) == ("local", True, None)
        answer = await client.http.post(
            "/console/session", json={"api_key": "any"}, headers=page_headers(server)
        )
        assert (answer.status_code, "Set-Cookie" in answer.headers) == (204, False)


async def test_behind_a_path_all_addresses_begin_with_it(database_url: str) -> None:
    built_console()
    url = "https://example.com/agents"
    async with serving(database_url, public_url=url) as server, server.client() as client:
        page = await client.http.get("/console/inbox")
        assert 'data-prefix="/agents"' in page.text
        assert "/agents/console/assets/" in page.headers["Content-Security-Policy"]
        assert (await client.http.get("/v1/me")).json()["public_url"] == url


async def test_one_setting_leaves_the_console_out(database_url: str) -> None:
    async with serving(database_url, console=0) as server, server.client() as client:
        for path in ("/console", "/console/", "/console/inbox", "/console/assets/x.js"):
            assert (await client.http.get(path, headers=BROWSER)).status_code == 404
        assert (await client.http.post("/console/session", json={})).status_code == 404
        page = await client.http.get("/", headers=BROWSER)
        assert "holdfast decide approve" in page.text
