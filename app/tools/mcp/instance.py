"""One instance of a server: started when it is needed, restarted after it broke, stopped when it is idle.

Each connection belongs to one task, which opens and closes it. Other tasks use it meanwhile. After a failed start
the next one waits, twice as long each time. After five failures it is given up for five minutes.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass, field
from enum import StrEnum

import structlog

from app import telemetry
from app.tools.mcp.client import (
    AuthorizationNeeded,
    ClientEvents,
    McpClient,
    OpenClient,
    ServerAway,
)
from app.tools.mcp.server_spec import McpServerSpec
from app.tools.result_limits import shortened

FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 60.0
MAX_FAILURES = 5
GIVEN_UP_SECONDS = 300.0
MAX_ERROR_CHARACTERS = 500

log = structlog.get_logger(__name__)


class InstanceState(StrEnum):
    IDLE = "idle"
    STARTING = "starting"
    UP = "up"
    FAILING = "failing"
    GIVEN_UP = "given_up"


@dataclass(slots=True)
class _Connection:
    """One connection, from the start of its task to its end."""

    client: McpClient | None = None
    started: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it is open, or when it could not be opened."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    is_stopping: bool = False
    needs_authorization: bool = False

    def stop(self) -> None:
        self.is_stopping = True
        self.wake.set()


class McpInstance:
    """A server, with at most one connection in use."""

    def __init__(
        self,
        spec: McpServerSpec,
        open_client: OpenClient,
        environ: Mapping[str, str],
        events: ClientEvents,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._spec = spec
        self._open_client = open_client
        self._environ = environ
        self._events = events
        self._tasks = tasks
        self._now = asyncio.get_running_loop().time
        self._connection: _Connection | None = None
        self._retry_at = 0.0
        self._users = 0
        self._used_at = 0.0
        self.failures = 0
        """Failed starts in a row."""
        self.starts = 0
        self.last_error: str | None = None
        self.protocol_version: str | None = None
        self.server_version: str | None = None

    @property
    def state(self) -> InstanceState:
        connection = self._connection
        if connection is not None:
            return InstanceState.STARTING if connection.client is None else InstanceState.UP
        if self.failures >= MAX_FAILURES:
            return InstanceState.GIVEN_UP
        return InstanceState.FAILING if self.failures else InstanceState.IDLE

    @property
    def is_used(self) -> bool:
        return self._users > 0

    @property
    def used_at(self) -> float:
        return self._used_at

    @asynccontextmanager
    async def client(self) -> AsyncIterator[McpClient]:
        """An open client, which isn't stopped as idle meanwhile. Raises ServerAway."""
        self._users += 1
        try:
            yield await self._opened()
        finally:
            self._users -= 1
            self._used_at = self._now()

    def stop(self) -> None:
        """Close the connection. The next use starts another one at once."""
        if self._connection is not None:
            self._connection.stop()
            self._connection = None

    def restart(self) -> None:
        """Close the connection, and forget failed starts."""
        self.stop()
        self.failures, self._retry_at = 0, 0.0

    async def _opened(self) -> McpClient:
        connection = self._connection
        if connection is None or (connection.client is not None and connection.client.is_closed):
            connection = self._start()
        await connection.started.wait()
        if connection.client is None:
            why = self.last_error or "it was stopped"
            raise AuthorizationNeeded(why) if connection.needs_authorization else ServerAway(why)
        return connection.client

    def _start(self) -> _Connection:
        wait = self._retry_at - self._now()
        if wait > 0:
            raise ServerAway(
                f"{self.last_error or 'it did not start'} (it is tried again in {wait:.0f} s)"
            )
        connection = _Connection()
        self._connection = connection
        self.starts += 1
        # A task of its own context: its log lines don't belong to the run that needed the server first.
        self._tasks.create_task(self._own(connection), context=Context())
        return connection

    async def _own(self, connection: _Connection) -> None:
        """Open the connection, keep it while it is used, and close it."""
        spec = self._spec
        try:
            context = self._open_client(spec, self._environ, self._events)
            try:
                async with asyncio.timeout(spec.startup_timeout):
                    client = await context.__aenter__()
            except TimeoutError:
                raise ServerAway(f"it did not start within {spec.startup_timeout:g} s") from None
            try:
                self._note_open(connection, client)
                await self._until_unused(connection, client)
            finally:
                self._release(connection)
                await context.__aexit__(None, None, None)
        except Exception as error:  # noqa: BLE001  a server's failure must not harm the process
            self._note_failure(connection, error)
        finally:
            self._release(connection)
            connection.started.set()

    def _note_open(self, connection: _Connection, client: McpClient) -> None:
        self.failures, self._retry_at, self.last_error = 0, 0.0, None
        self.protocol_version = client.protocol_version
        self.server_version = client.server_version
        connection.client = client
        self._used_at = self._now()
        telemetry.mcp_starts.labels(self._spec.name, "up").inc()
        log.info(
            "mcp_server_up",
            server=self._spec.name,
            protocol=client.protocol_version,
            version=client.server_version,
        )
        connection.started.set()

    def _note_failure(self, connection: _Connection, error: Exception) -> None:
        text = shortened(self._events.redact(_text_of(error)), MAX_ERROR_CHARACTERS)
        self.last_error = text
        if connection.client is not None:
            log.info("mcp_server_closed", server=self._spec.name, error=text)
            return
        if isinstance(error, AuthorizationNeeded):
            # The server is up; the next start waits for a person and not for time.
            connection.needs_authorization = True
            return
        self.failures += 1
        pause = min(FIRST_PAUSE_SECONDS * 2 ** (self.failures - 1), MAX_PAUSE_SECONDS)
        if self.failures >= MAX_FAILURES:
            pause = GIVEN_UP_SECONDS
        self._retry_at = self._now() + pause
        telemetry.mcp_starts.labels(self._spec.name, "failed").inc()
        log.warning(
            "mcp_server_failed",
            server=self._spec.name,
            error=text,
            failures=self.failures,
            again_in=pause,
        )

    async def _until_unused(self, connection: _Connection, client: McpClient) -> None:
        """Wait until the connection breaks, is stopped, or wasn't used for the idle time."""
        async with asyncio.TaskGroup() as watching:
            watcher = watching.create_task(_wake_when_closed(connection, client))
            while not (connection.is_stopping or client.is_closed):
                left = self._spec.idle
                if not self.is_used:
                    left += self._used_at - self._now()
                if left <= 0:
                    break
                try:
                    async with asyncio.timeout(left):
                        await connection.wake.wait()
                except TimeoutError:
                    continue
                connection.wake.clear()
            self._release(connection)
            if client.is_closed and not connection.is_stopping:
                self.last_error = "the connection was lost"
                log.warning("mcp_server_lost", server=self._spec.name)
            watcher.cancel()

    def _release(self, connection: _Connection) -> None:
        if self._connection is connection:
            self._connection = None


async def _wake_when_closed(connection: _Connection, client: McpClient) -> None:
    await client.wait_closed()
    connection.wake.set()


def _text_of(error: BaseException) -> str:
    """The first cause in a group, as text."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
