"""The connections of a process: its database, and the transport of hints to other processes."""

import asyncio
from contextlib import AsyncExitStack
from importlib import import_module
from types import ModuleType

from app.domain.errors import ConfigurationError
from app.embedded_postgres.server import EmbeddedPostgres, default_data_dir
from app.events.fanout.notify import NotifyTransport
from app.events.fanout.relay import Transport
from app.settings import Settings
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import Database
from app.storage.postgres.notifications import installation
from app.storage.postgres.urls import place_of
from app.storage.runs import diagnostics
from app.storage.server_secrets import stream_token_secret


async def database_url(settings: Settings, stack: AsyncExitStack) -> tuple[str, str]:
    """The database's URL, and its place as it is shown. Without `DATABASE_URL`, starts the embedded server."""
    if settings.database_url is not None:
        return settings.database_url, f"Postgres at {place_of(settings.database_url)}"
    data_dir = settings.data_dir or default_data_dir()
    embedded = await asyncio.to_thread(EmbeddedPostgres.start, data_dir)
    stack.push_async_callback(asyncio.to_thread, embedded.stop)
    return embedded.url, f"{data_dir} (embedded Postgres)"


def require_direct_url(settings: Settings) -> None:
    """Refuse a pooler without a direct URL: LISTEN doesn't work through transaction pooling."""
    if settings.pgbouncer and settings.listen_url is None:
        raise ConfigurationError(
            "HOLDFAST_PGBOUNCER needs HOLDFAST_LISTEN_URL: the address of the server itself, for LISTEN."
        )


async def living_workers(database: Database, settings: Settings) -> int:
    """The number of living processes that execute runs of this database."""
    async with database.reading() as connection:
        return await diagnostics.living_workers(
            connection, heartbeat_timeout=settings.heartbeat_timeout
        )


def database_options(settings: Settings) -> DatabaseOptions:
    return DatabaseOptions(
        pool_size=settings.pool_size,
        hot_pool_size=settings.hot_pool_size,
        pgbouncer=settings.pgbouncer,
        pool_timeout=settings.pool_timeout,
        statement_timeout=settings.statement_timeout,
        lock_timeout=settings.lock_timeout,
        connection_lifetime=settings.connection_lifetime,
        tcp_keepalive=settings.tcp_keepalive,
    )


async def stream_token_secrets(settings: Settings, database: Database) -> tuple[bytes, ...]:
    """The secret that signs stream tokens, then the previous one that is still accepted."""
    current = settings.stream_token_secret
    secrets = [
        await stream_token_secret(database.pool) if current is None else current.encode(),
    ]
    if settings.stream_token_secret_previous is not None:
        secrets.append(settings.stream_token_secret_previous.encode())
    return tuple(secrets)


async def open_transport(settings: Settings, database: Database) -> Transport:
    """The transport of hints between the processes on this database."""
    if settings.nats_url is None:
        return NotifyTransport(database)
    transport: Transport = nats().NatsTransport(
        settings.nats_url, await installation(database.pool)
    )
    return transport


def nats() -> ModuleType:
    """The module of the NATS transport. Its library is an extra, so it is imported only when needed."""
    try:
        return import_module("app.events.fanout.nats")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "NATS_URL is set, and the library for NATS isn't installed. Install it with "
            "`pip install 'holdfast-server[nats]'`, or unset NATS_URL to send hints over Postgres."
        ) from error
