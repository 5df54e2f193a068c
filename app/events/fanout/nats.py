"""Hints over NATS: for many replicas, or where no connection to Postgres may LISTEN. Needs the extra `nats`.

Subjects are `holdfast.<database>.<topic>.<thread or run>`; several installations may share a server.
The library's reconnecting is off: after a reconnect hints are missing, and the relay has to know that.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import SlowConsumerError

from app.domain.errors import ConfigurationError
from app.events.fanout.relay import Handler, Hint, Topic, TransportUnavailable

MAX_PAYLOAD_BYTES = 256_000
"""The largest hint, if the server accepts as much. Readers get larger events from the log."""
CONNECT_TIMEOUT_SECONDS = 5.0
CONNECTION_ERRORS: tuple[type[Exception], ...] = (NatsError, OSError, TimeoutError)
_SCHEMES = ("nats", "tls", "ws", "wss")


class NatsTransport:
    name = "nats"

    def __init__(self, url: str, database: str) -> None:
        """`database` identifies the installation; it is the same in all of its processes."""
        self._servers = servers_of(url)
        self._prefix = f"holdfast.{database}"
        self._client: Client | None = None

    @property
    def max_payload_bytes(self) -> int:
        return (
            MAX_PAYLOAD_BYTES
            if self._client is None
            else min(MAX_PAYLOAD_BYTES, self._client.max_payload)
        )

    async def send(self, topic: Topic, hints: Sequence[Hint]) -> None:
        client = self._client
        if client is None:
            raise TransportUnavailable("not connected")
        try:
            for hint in hints:
                subject = f"{self._prefix}.{topic}.{hint.about}"
                await client.publish(subject, hint.payload.encode())
        except CONNECTION_ERRORS as error:
            raise TransportUnavailable(repr(error)[:200]) from error

    async def listen(
        self, handlers: Mapping[Topic, Handler], *, on_connected: Callable[[], None]
    ) -> None:
        lost = asyncio.Event()

        async def on_closed() -> None:
            lost.set()

        async def on_error(error: Exception) -> None:
            if isinstance(error, SlowConsumerError):
                on_connected()

        try:
            async with _connected(self._servers, on_closed=on_closed, on_error=on_error) as client:
                for topic, handle in handlers.items():
                    await client.subscribe(f"{self._prefix}.{topic}.*", cb=_payload_to(handle))
                # The library writes a PING at once, and the subscriptions before it a moment later. So only the
                # second answer shows that the server has the subscriptions.
                for _ in range(2):
                    await client.flush(timeout=int(CONNECT_TIMEOUT_SECONDS))
                self._client = client
                on_connected()
                await lost.wait()
        except CONNECTION_ERRORS as error:
            raise TransportUnavailable(repr(error)[:200]) from error
        finally:
            self._client = None


async def require_reachable(url: str) -> str:
    """The address of the server that answers; raises `TransportUnavailable` if none does."""
    try:
        async with _connected(servers_of(url)) as client:
            found = client.connected_url
            return "" if found is None else f"{found.hostname}:{found.port}"
    except CONNECTION_ERRORS as error:
        raise TransportUnavailable(repr(error)[:200]) from error


def servers_of(url: str) -> list[str]:
    """The server URLs of a setting: one, or several separated by commas."""
    servers = [one.strip() for one in url.split(",")]
    for server in servers:
        if not _is_address(server):
            raise ConfigurationError(
                "NATS_URL must be a URL such as nats://user@host:4222, or several "
                "separated by commas."
            )
    return servers


def _is_address(server: str) -> bool:
    try:
        parts = urlsplit(server)
        return parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


async def _ignore(*_: object) -> None:
    pass


@asynccontextmanager
async def _connected(
    servers: list[str],
    *,
    on_closed: Callable[[], Awaitable[None]] = _ignore,
    on_error: Callable[[Exception], Awaitable[None]] = _ignore,
) -> AsyncIterator[Client]:
    async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
        client = await nats.connect(
            servers,
            name="holdfast",
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=int(CONNECT_TIMEOUT_SECONDS),
            # Pings detect a half-open connection.
            ping_interval=5,
            max_outstanding_pings=2,
            closed_cb=on_closed,
            error_cb=on_error,
        )
    try:
        yield client
    finally:
        await client.close()


def _payload_to(handle: Handler) -> Callable[[Msg], Awaitable[None]]:
    async def received(message: Msg) -> None:
        handle(message.data.decode())

    return received
