"""Requests to models through the proxies of the environment."""

import asyncio
import gzip
from collections.abc import Mapping

import httpx2
import pytest

from app.llm.http.client import StreamingClient
from tests.support.certificates import HOST, Certificate
from tests.support.controlled_server import TIMEOUT_SECONDS, ControlledServer, controlled_server
from tests.support.event_loops import anyio_backend as anyio_backend
from tests.support.forward_proxy import tunnel_proxy
from tests.support.http_requests import PATIENT, address_of, answered, asked, begun, contents_of
from tests.support.proxy_variables import without_proxies

pytestmark = pytest.mark.anyio

UNREACHABLE = "http://models.invalid/v1"
BEGINNING = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\na"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    without_proxies(monkeypatch)


@pytest.fixture(params=["ALL_PROXY", "HTTP_PROXY", "all_proxy", "http_proxy"])
def proxied(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, host: ControlledServer
) -> ControlledServer:
    """The server is the proxy."""
    monkeypatch.setenv(request.param, address_of(host))
    return host


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch, host: ControlledServer) -> ControlledServer:
    monkeypatch.setenv("HTTP_PROXY", address_of(host))
    return host


async def test_proxies_from_the_environment_are_used(proxied: ControlledServer) -> None:
    async with StreamingClient() as client, asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(answered(client, UNREACHABLE, b"{}"))
        connection = await proxied.connection()
        sent = await connection.answer(b"by proxy")
        assert sent.startswith(b"POST http://models.invalid/v1 HTTP/1.1\r\n")
        assert b"\r\nhost: models.invalid\r\n" in sent.lower()
        assert await connection.reader.readexactly(2) == b"{}"
        assert await asking == b"by proxy"


async def test_the_next_request_goes_over_the_same_connection(proxy: ControlledServer) -> None:
    async with StreamingClient() as client, asyncio.TaskGroup() as tasks:
        connection = None
        for body in (b"one", b"two"):
            asking = tasks.create_task(asked(client, UNREACHABLE))
            connection = connection or await proxy.connection()
            await connection.answer(body)
            response = await asking
            assert not response.is_complete
            assert await contents_of(response) == body
            assert response.is_complete
        assert proxy.connections.empty()


async def test_a_response_that_was_not_read_to_its_end_closes_its_connection(
    proxy: ControlledServer,
) -> None:
    async with StreamingClient() as client:
        response, connection = await begun(client, UNREACHABLE, proxy, BEGINNING)
        assert await response.read() == b"a"
        await response.aclose()
        assert await connection.client_has_left() == 0


async def test_silence_is_a_time_out(proxy: ControlledServer) -> None:
    limits = PATIENT._replace(idle=0.1)
    async with StreamingClient() as client:
        response, _ = await begun(client, UNREACHABLE, proxy, BEGINNING, limits=limits)
        assert await response.read() == b"a"
        with pytest.raises(httpx2.ReadTimeout):
            await response.read()
        await response.aclose()


async def test_a_compressed_body_is_decoded(proxy: ControlledServer) -> None:
    body = gzip.compress(b"an answer")
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body)
    async with StreamingClient() as client:
        response, _ = await begun(client, UNREACHABLE, proxy, head + body)
        assert await contents_of(response) == b"an answer"


async def test_a_proxy_that_is_away_is_an_error(
    monkeypatch: pytest.MonkeyPatch, taken_port: int
) -> None:
    monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{taken_port}")
    async with StreamingClient() as client:
        with pytest.raises(httpx2.ConnectError):
            await answered(client, UNREACHABLE)


# --- servers without a proxy ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "variables",
    [
        {"ALL_PROXY": "{proxy}", "NO_PROXY": "127.0.0.1"},
        {"all_proxy": "{proxy}", "no_proxy": "example.com, 127.0.0.1"},
        {"HTTP_PROXY": "{proxy}", "NO_PROXY": "127.0.0.0/8"},
        {"HTTP_PROXY": "{proxy}", "NO_PROXY": "*"},
        {"HTTP_PROXY": "{proxy}", "NO_PROXY": "http://127.0.0.1:{port}"},
        {"HTTPS_PROXY": "{proxy}"},
        {"NO_PROXY": "example.com"},
        {"HTTP_PROXY": ""},
    ],
    ids=str,
)
async def test_a_server_without_a_proxy_is_asked_directly(
    monkeypatch: pytest.MonkeyPatch,
    host: ControlledServer,
    taken_port: int,
    variables: Mapping[str, str],
) -> None:
    proxy = f"http://127.0.0.1:{taken_port}"
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(proxy=proxy, port=host.port))
    async with StreamingClient() as client, asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(answered(client, address_of(host)))
        await (await host.connection()).answer(b"directly")
        assert await asking == b"directly"
        assert len(client._direct.connections) == 1


async def test_a_port_without_a_proxy_is_not_that_of_another_server(
    monkeypatch: pytest.MonkeyPatch, proxy: ControlledServer
) -> None:
    monkeypatch.setenv("NO_PROXY", "http://127.0.0.1:1")
    async with StreamingClient() as client, asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(answered(client, "http://127.0.0.1:2/"))
        sent = await (await proxy.connection()).answer(b"by proxy")
        assert sent.startswith(b"POST http://127.0.0.1:2/ ")
        assert await asking == b"by proxy"


# --- tunnels --------------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "all_proxy"])
async def test_a_server_with_tls_is_reached_through_a_tunnel(
    monkeypatch: pytest.MonkeyPatch, certificate: Certificate, variable: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
    async with controlled_server(certificate) as host, tunnel_proxy(host) as proxy:
        monkeypatch.setenv(variable, f"http://user:secret@127.0.0.1:{proxy.port}")
        async with StreamingClient() as client, asyncio.TaskGroup() as tasks:
            connection = None
            for body in (b"one", b"two"):
                asking = tasks.create_task(answered(client, f"https://{HOST}:443/v1"))
                connection = connection or await host.connection()
                sent = await connection.answer(body)
                assert sent.startswith(b"POST /v1 HTTP/1.1\r\n")
                assert await asking == body
    (tunnel,) = proxy.asked
    assert tunnel.startswith(b"CONNECT localhost:443 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=" in tunnel


async def test_a_refused_tunnel_is_an_error(
    monkeypatch: pytest.MonkeyPatch, host: ControlledServer
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", address_of(host))
    async with StreamingClient() as client, asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(_error_of(client))
        connection = await host.connection()
        await connection.reader.readuntil(b"\r\n\r\n")
        connection.writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
        assert isinstance(await asyncio.wait_for(asking, TIMEOUT_SECONDS), httpx2.ProxyError)


async def _error_of(client: StreamingClient) -> httpx2.HTTPError | None:
    try:
        await answered(client, "https://models.invalid/")
    except httpx2.HTTPError as error:
        return error
    return None
