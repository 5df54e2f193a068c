"""Opens connections to Postgres: settings, pools, and the preparation of each connection."""

from typing import Any, TypeAlias

import asyncpg
from msgspec import Struct

from app.domain.json_values import parsed
from app.storage.postgres.connection import Row
from app.storage.postgres.errors import OutageLog
from app.storage.postgres.open_connections import OpenConnections, TimedConnection
from app.storage.postgres.pool import (
    KEEPALIVE_COUNT,
    KEEPALIVE_INTERVAL_SECONDS,
    ConnectionPool,
    keep_alive,
)
from app.storage.postgres.urls import unreachable

RawConnection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
QueuePool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"

QUEUE_CONNECTIONS = 4
CLIENT_TIMEOUT_MARGIN_SECONDS = 2.0
"""Extra seconds for the server after its own time-outs, before it counts as silent."""
CANNOT_CONNECT: tuple[type[Exception], ...] = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    ValueError,
)
"""Errors of a first connection: a wrong host, name or password, or no server."""

# A single statement reads a few rows by key and is planned once per connection. Statistics of new tables would
# mislead the planner.
_PLAN_ONCE = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}
# A transaction may search by any column. These settings take no round trip of their own.
_PLAN_EACH = (
    "; SET LOCAL plan_cache_mode = auto; SET LOCAL enable_seqscan = on"
    "; SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on"
)


class DatabaseOptions(Struct, frozen=True):
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
    transaction_timeout: float | None = None
    """Seconds that a transaction may take at most; by default twice `statement_timeout`. It ends one whose process
    froze within a statement, for which `idle_timeout` doesn't count. Postgres has it from version 17 on."""
    connect_timeout: float = 5.0
    connection_lifetime: float = 1800.0
    tcp_keepalive: float = 30.0


async def open_pool(dsn: str, options: DatabaseOptions, outages: OutageLog) -> ConnectionPool:
    settings = connection_options(options)
    if not options.pgbouncer:
        settings["server_settings"] = {**settings["server_settings"], **_PLAN_ONCE}

    async def open_one() -> TimedConnection:
        connection: TimedConnection = await asyncpg.connect(
            dsn, connection_class=TimedConnection, record_class=Row, **settings
        )
        try:
            keep_alive(connection, options.tcp_keepalive)
            await _limit_transactions(connection, options)
            await read_uuids_as_text(connection)
            await read_json(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    connections = OpenConnections(open_one, options.pool_size + options.hot_pool_size)
    try:
        await connections.open(min(2, options.hot_pool_size))
    except CANNOT_CONNECT as error:
        connections.terminate()
        raise unreachable(dsn, error) from error
    return ConnectionPool(
        connections,
        outages,
        transactions=options.pool_size,
        timeout=options.pool_timeout,
        lifetime=options.connection_lifetime,
    )


def connection_options(options: DatabaseOptions, *, direct: bool = False) -> dict[str, Any]:
    """Time-outs: the server cancels slow statements, and the client gives up a silent server a little later.

    A pooler supports no session settings: they must be set for the role.
    """
    pooled = options.pgbouncer and not direct
    return {
        "timeout": options.connect_timeout,
        "command_timeout": options.statement_timeout + CLIENT_TIMEOUT_MARGIN_SECONDS,
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
        "tcp_keepalives_interval": str(KEEPALIVE_INTERVAL_SECONDS),
        "tcp_keepalives_count": str(KEEPALIVE_COUNT),
    }


async def _limit_transactions(connection: RawConnection, options: DatabaseOptions) -> None:
    if not options.pgbouncer and connection.get_server_version().major >= 17:
        seconds = options.transaction_timeout or 2 * options.statement_timeout
        milliseconds = int(seconds * 1000)
        await connection.execute(f"SET transaction_timeout = {milliseconds}")


def begin(options: DatabaseOptions, *, read_only: bool = False) -> str:
    """The statement that begins a transaction. A pooler's connections have no settings to undo."""
    mode = "BEGIN READ ONLY" if read_only else "BEGIN"
    return mode if options.pgbouncer else mode + _PLAN_EACH


async def keep(_: RawConnection) -> None:
    """Replaces the reset of a released connection: our statements leave no session state."""


async def read_uuids_as_text(connection: RawConnection) -> None:
    """Read and write uuids as text, which Python code uses for ids. Postgres converts uuids faster."""
    await connection.set_type_codec(
        "uuid", schema="pg_catalog", encoder=str, decoder=str, format="text"
    )


async def read_json(connection: RawConnection) -> None:
    """Decode columns of JSON. Parameters are JSON text already."""
    await connection.set_type_codec(
        "jsonb", schema="pg_catalog", encoder=str, decoder=parsed, format="text"
    )
