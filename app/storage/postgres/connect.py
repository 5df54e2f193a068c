"""Opens connections to Postgres: settings, pools, and the preparation of each connection."""

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
    TimedConnection,
    keep_alive,
)
from app.storage.postgres.urls import unreachable

RawConnection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
QueuePool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"

QUEUE_CONNECTIONS = 4
SILENCE_TIMEOUT_SECONDS = 2.0
"""Extra seconds for the server after its own time-outs, before it counts as silent."""
CANNOT_CONNECT: tuple[type[Exception], ...] = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    ValueError,
)
"""Errors of a first connection: a wrong host, name or password, or no server."""

# A hot statement reads a few rows by key and is planned once per connection. Statistics of new tables would
# mislead the planner.
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
    """Seconds that a transaction may be idle. Longer, its process is dead or frozen, and its locks block other
    processes."""
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
        # Stored values may be secret: an error shows only the statement.
        hide_parameters=True,
        connect_args={
            "async_creator_fn": connect,
            # A pooler may run the next transaction on a connection without this statement.
            "prepared_statement_cache_size": 0 if options.pgbouncer else 100,
        },
        pool_size=options.pool_size,
        pool_timeout=options.pool_timeout,
        max_overflow=0,
        pool_recycle=options.connection_lifetime,
        pool_use_lifo=True,
    )
    event.listen(engine.sync_engine, "checkout", _refuse_closed)
    event.listen(engine.sync_engine, "handle_error", _replace_all_after_outage)
    return engine


def _replace_all_after_outage(context: ExceptionContext) -> None:
    """Let the pool replace all its connections when a server is silent or read-only."""
    error = context.original_exception
    cause = error.__cause__ or error
    if isinstance(cause, TRANSIENT_CODES) and reason_of(cause) in INVALIDATING_REASONS:
        context.is_disconnect = True


def _refuse_closed(connection: Any, _record: object, _proxy: object) -> None:
    """Let the pool replace a connection that the server has closed. The driver knows that without a query."""
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
            connection_class=TimedConnection,
            init=prepare,
            reset=keep,
            **settings,
        )
    except CANNOT_CONNECT as error:
        raise unreachable(dsn, error) from error
    return ConnectionPool(
        pool, outages, timeout=options.pool_timeout, lifetime=options.connection_lifetime
    )


def connection_options(options: DatabaseOptions, *, direct: bool = False) -> dict[str, Any]:
    """Time-outs: the server cancels slow statements, and the client gives up a silent server a little later.

    A pooler supports no session settings: they must be set for the role.
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
        # With these the server notices a lost client and releases its locks.
        "tcp_keepalives_idle": str(max(1, int(options.tcp_keepalive))),
        "tcp_keepalives_interval": str(KEEPALIVE_INTERVAL),
        "tcp_keepalives_count": str(KEEPALIVE_COUNT),
    }


async def keep(_: RawConnection) -> None:
    """Replaces the reset of a released connection: hot statements leave no session state."""


async def read_uuids_as_text(connection: RawConnection) -> None:
    """Decode uuids to text, which Python code uses for ids. This saves an object per id."""
    await connection.set_type_codec(
        "uuid", schema="pg_catalog", encoder=_uuid_bytes, decoder=_uuid_text, format="binary"
    )


def _uuid_bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("-", ""))


def _uuid_text(value: bytes) -> str:
    digits = value.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
