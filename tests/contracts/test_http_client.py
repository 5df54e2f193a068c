"""The HTTP client of all models: its certificates, proxies and reused connections."""

import asyncio

import httpx2
import pytest

from app.clock import sleep
from app.llm.http.asyncio_backend import Connection
from app.llm.http.client import streaming_client
from tests.support.certificates import HOST, Certificate
from tests.support.controlled_server import ControlledServer, controlled_server

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the proxy variables of the environment."""
    for name in ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


async def test_the_client_trusts_the_certificates_of_ssl_cert_file(
    monkeypatch: pytest.MonkeyPatch, certificate: Certificate
) -> None:
    async with controlled_server(certificate) as host:
        url = f"https://{HOST}:{host.port}/"
        async with streaming_client() as client:
            with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await client.get(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
        async with streaming_client() as client, asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(client.get(url))
            await (await host.connection()).answer(b"trusted")
            assert (await asking).content == b"trusted"


async def test_an_idle_connection_is_used_again_until_its_server_closes_it(
    host: ControlledServer,
) -> None:
    async with streaming_client() as client, asyncio.TaskGroup() as tasks:
        url = f"http://127.0.0.1:{host.port}/"
        asking = tasks.create_task(client.get(url))
        first = await host.connection()
        await first.answer(b"one")
        assert (await asking).content == b"one"
        asking = tasks.create_task(client.get(url))
        await first.answer(b"two")
        assert (await asking).content == b"two"
        first.writer.close()
        await first.writer.wait_closed()
        await sleep(0)
        asking = tasks.create_task(client.get(url))
        await (await host.connection()).answer(b"three")
        assert (await asking).content == b"three"


@pytest.mark.parametrize("variable", ["ALL_PROXY", "HTTP_PROXY"])
async def test_proxies_from_the_environment_are_used(
    monkeypatch: pytest.MonkeyPatch, host: ControlledServer, variable: str
) -> None:
    monkeypatch.setenv(variable, f"http://127.0.0.1:{host.port}")
    async with streaming_client() as client, asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(client.get("http://models.invalid/"))
        asked = await (await host.connection()).answer(b"by proxy")
        assert asked.startswith(b"GET http://models.invalid/ ")
        assert (await asking).content == b"by proxy"


async def test_hosts_without_a_proxy_use_the_direct_backend(
    monkeypatch: pytest.MonkeyPatch, host: ControlledServer, taken_port: int
) -> None:
    monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{taken_port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    async with streaming_client() as client, asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(client.get(f"http://127.0.0.1:{host.port}/"))
        await (await host.connection()).answer(b"directly")
        response = await asking
        assert response.content == b"directly"
        assert isinstance(response.extensions["network_stream"], Connection)
