"""The HTTP client of all models: its certificates and reused connections."""

import asyncio
import ssl

import httpx2
import pytest

from app.clock import yield_to_loop
from app.llm.http.client import StreamingClient
from tests.support.certificates import HOST, Certificate
from tests.support.controlled_server import ControlledServer, controlled_server
from tests.support.event_loops import anyio_backend as anyio_backend
from tests.support.http_requests import address_of, answered
from tests.support.proxy_variables import without_proxies

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    without_proxies(monkeypatch)


async def test_the_client_trusts_the_certificates_of_ssl_cert_file(
    monkeypatch: pytest.MonkeyPatch, certificate: Certificate
) -> None:
    async with controlled_server(certificate) as host:
        url = f"https://{HOST}:{host.port}/"
        async with StreamingClient() as client:
            with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await answered(client, url)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
        async with StreamingClient() as client, asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(answered(client, url))
            await (await host.connection()).answer(b"trusted")
            assert await asking == b"trusted"


async def test_a_trusted_certificate_of_another_name_is_refused(
    monkeypatch: pytest.MonkeyPatch, certificate: Certificate
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
    async with controlled_server(certificate) as host, StreamingClient() as client:
        with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await answered(client, f"https://127.0.0.1:{host.port}/")


class WithHttp2(Certificate):
    """Of a server that prefers HTTP/2."""

    __slots__ = ()

    def of_server(self) -> ssl.SSLContext:
        context = Certificate.of_server(self)
        context.set_alpn_protocols(["h2", "http/1.1"])
        return context


async def test_a_server_with_http_2_is_asked_for_http_1(
    monkeypatch: pytest.MonkeyPatch, certificate: Certificate
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
    async with (
        controlled_server(WithHttp2(certificate.file)) as host,
        StreamingClient() as client,
        asyncio.TaskGroup() as tasks,
    ):
        asking = tasks.create_task(answered(client, f"https://{HOST}:{host.port}/"))
        served = await host.connection()
        await served.answer(b"agreed")
        assert await asking == b"agreed"
        assert served.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"


async def test_an_idle_connection_is_used_again_until_its_server_closes_it(
    host: ControlledServer,
) -> None:
    async with StreamingClient() as client, asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(answered(client, address_of(host)))
        first = await host.connection()
        await first.answer(b"one")
        assert await asking == b"one"
        asking = tasks.create_task(answered(client, address_of(host)))
        await first.answer(b"two")
        assert await asking == b"two"
        first.writer.close()
        await first.writer.wait_closed()
        (idle,) = client._direct.connections
        while idle.is_idle:
            await yield_to_loop()
        asking = tasks.create_task(answered(client, address_of(host)))
        await (await host.connection()).answer(b"three")
        assert await asking == b"three"


async def test_a_closed_client_sends_nothing(host: ControlledServer) -> None:
    async with StreamingClient() as client:
        pass
    with pytest.raises(httpx2.ConnectError, match="the client is closed"):
        await answered(client, address_of(host))
