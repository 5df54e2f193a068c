"""How connections to Postgres are opened: with which settings, and what is done on each at first."""

from dataclasses import dataclass
from typing import Any, TypeAlias
from weakref import WeakSet

import asyncpg
from sqlalchemy import event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from app.storage.postgres.errors import INVALIDATING_REASONS, TRANSIENT_CODES, OutageLog, reason_of
from app.storage.postgres.pool import (
    KEEPALIVE_COUNT,
    KEEPALIVE_INTERVAL,
    ConnectionPool,
    OurConnection,
    keep_alive,
)
from app.storage.postgres.urls import unreachable

RawConnection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
QueuePool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"

QUEUE_CONNECTIONS = 4
SILENCE_TIMEOUT_SECONDS = 2.0
"""Seconds that the server gets on top of its own time-outs, before it counts as silent."""
CANNOT_CONNECT: tuple[type[Exception], ...] = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    ValueError,
)
"""What a first connection may fail with: a place, name or password that is wrong, or nobody there."""

# A hot statement touches a few rows by key, whatever the statistics of young tables say, and is
# planned once per connection.
_HOT_SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """`pgbouncer` means transaction pooling: no prepared statements, no session settings."""

    pool_size: int = 10
    hot_pool_size: int = 10
    pgbouncer: bool = False
    pool_timeout: float = 5.0
    statement_timeout: float = 15.0
    lock_timeout: float = 5.0
    idle_timeout: float = 5.0
    """Seconds that a transaction may do nothing: whoever stands still in one is dead or frozen, and its
    locks keep others from going on with its runs."""
    connect_timeout: float = 5.0
    connection_lifetime: float = 1800.0
    tcp_keepalive: float = 30.0


def new_engine(dsn: str, options: DatabaseOptions, opened: WeakSet[RawConnection]) -> AsyncEngine:
    async def connect(**_: Any) -> RawConnection:
        connection: RawConnection = await asyncpg.connect(dsn, **connection_options(options))
        opened.add(connection)
        keep_alive(connection, options.tcp_keepalive)
        return connection

    engine = create_async_engine(
        "postgresql+asyncpg://",
        # What is stored may be anybody's secret: an error names the statement alone.
        hide_parameters=True,
        connect_args={
            "async_creator_fn": connect,
            # What one transaction has prepared, the next one finds on another of a pooler's connections.
            "prepared_statement_cache_size": 0 if options.pgbouncer else 100,
        },
        pool_size=options.pool_size,
        pool_timeout=options.pool_timeout,
        max_overflow=0,
        pool_recycle=options.connection_lifetime,
        pool_use_lifo=True,
    )
    event.listen(engine.sync_engine, "checkout", _refuse_lost)
    event.listen(engine.sync_engine, "handle_error", _distrust)
    return engine


def _distrust(context: ExceptionContext) -> None:
    """Have the pool replace all that it has when a server is silent, or takes no writes any more."""
    error = context.original_exception
    cause = error.__cause__ or error
    if isinstance(cause, TRANSIENT_CODES) and reason_of(cause) in INVALIDATING_REASONS:
        context.is_disconnect = True


def _refuse_lost(connection: Any, _record: object, _proxy: object) -> None:
    """Have the pool replace what its server has left: its driver knows, so nobody need ask the server."""
    if connection.driver_connection.is_closed():
        raise DisconnectionError


async def open_hot_pool(dsn: str, options: DatabaseOptions, outages: OutageLog) -> ConnectionPool:
    settings = connection_options(options)
    if not options.pgbouncer:
        settings["server_settings"] = {**settings["server_settings"], **_HOT_SETTINGS}

    async def prepare(connection: RawConnection) -> None:
        keep_alive(connection, options.tcp_keepalive)
        await read_uuids_as_text(connection)

    try:
        pool = await asyncpg.create_pool(
            dsn,
            min_size=min(2, options.hot_pool_size),
            max_size=options.hot_pool_size,
            max_inactive_connection_lifetime=600,
            connection_class=OurConnection,
            init=prepare,
            reset=keep,
            **settings,
        )
    except CANNOT_CONNECT as error:
        raise unreachable(dsn, error) from error
    return ConnectionPool(
        pool, outages, patience=options.pool_timeout, lifetime=options.connection_lifetime
    )


def connection_options(options: DatabaseOptions, *, direct: bool = False) -> dict[str, Any]:
    """The server ends what takes too long; a server that is silent is left, a little later.

    A pooler knows none of a session's settings: there they belong to the role.
    """
    pooled = options.pgbouncer and not direct
    return {
        "timeout": options.connect_timeout,
        "command_timeout": options.statement_timeout + SILENCE_TIMEOUT_SECONDS,
        "statement_cache_size": 0 if pooled else 200,
        "server_settings": {} if pooled else _session_settings(options),
    }


def _session_settings(options: DatabaseOptions) -> dict[str, str]:
    def milliseconds(seconds: float) -> str:
        return str(int(seconds * 1000))

    return {
        "application_name": "holdfast",
        "statement_timeout": milliseconds(options.statement_timeout),
        "lock_timeout": milliseconds(options.lock_timeout),
        "idle_in_transaction_session_timeout": milliseconds(options.idle_timeout),
        # So the server too leaves a client that is gone, and what it had locked.
        "tcp_keepalives_idle": str(max(1, int(options.tcp_keepalive))),
        "tcp_keepalives_interval": str(KEEPALIVE_INTERVAL),
        "tcp_keepalives_count": str(KEEPALIVE_COUNT),
    }


async def keep(_: RawConnection) -> None:
    """Hot statements leave nothing behind on a connection: a reset would be a wasted round trip."""


async def read_uuids_as_text(connection: RawConnection) -> None:
    """Ids are text everywhere in Python; this saves an object per id and row."""
    await connection.set_type_codec(
        "uuid", schema="pg_catalog", encoder=_uuid_bytes, decoder=_uuid_text, format="binary"
    )


def _uuid_bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("-", ""))


def _uuid_text(value: bytes) -> str:
    digits = value.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
