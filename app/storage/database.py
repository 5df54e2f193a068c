"""The connections to Postgres: one engine for statements, one raw pool for the hot ones."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

import asyncpg
from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError, DisconnectionError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from uuid_utils.compat import uuid4

from app.domain.errors import DatabaseAway, DatabaseUnusable

Connection: TypeAlias = AsyncConnection
RawConnection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
RawPool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"

OLDEST_SERVER = 14
_PASSING: tuple[type[Exception], ...] = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    # A connection that the server has ended, used before the driver has seen it close.
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,
    asyncpg.LockNotAvailableError,
    asyncpg.ReadOnlySQLTransactionError,
    # A database that is being renamed, restored or closed to us for a while.
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InvalidAuthorizationSpecificationError,
)
_PASSING_THROUGH_THE_ENGINE: tuple[type[Exception], ...] = (PoolTimeout, *_PASSING)
DATABASE_AWAY: tuple[type[Exception], ...] = (*_PASSING, DatabaseAway)
"""What passes by itself: the same statement may succeed in a moment."""
CANNOT_CONNECT: tuple[type[Exception], ...] = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    ValueError,
)
"""What a first connection may fail with: a place, name or password that is wrong, or nobody there."""

_NOTHING = text("SELECT")
_LIBPQ_ONLY = frozenset(
    {"channel_binding", "gssencmode", "sslcompression", "connect_timeout", "pgbouncer"}
)
# A hot statement touches a few rows by key, whatever the statistics of young tables say, and is
# planned once per connection.
_HOT_SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}


def asyncpg_dsn(url: str) -> str:
    """Any common spelling of a Postgres URL as the one that asyncpg reads."""
    parts = urlsplit(url)
    if parts.scheme.partition("+")[0] not in ("postgres", "postgresql"):
        raise DatabaseUnusable(
            f"DATABASE_URL starts with {parts.scheme or url[:12]!r}; it must be a Postgres URL such as "
            "postgresql://user:password@host:5432/database"
        )
    query = [(key, value) for key, value in parse_qsl(parts.query) if key not in _LIBPQ_ONLY]
    query = [("sslmode" if key == "ssl" else key, value) for key, value in query]
    # Put together by hand: urlunsplit drops the slashes of a URL without a host.
    return f"postgresql://{parts.netloc}{parts.path}" + (f"?{urlencode(query)}" if query else "")


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """`pgbouncer` means transaction pooling: no prepared statements, no session settings."""

    pool_size: int = 10
    hot_pool_size: int = 10
    pgbouncer: bool = False
    statement_timeout: float = 30.0
    connect_timeout: float = 10.0


class Database:
    """Opened once per process by the composition root; every connection of ours comes from here."""

    def __init__(self, dsn: str, listen_dsn: str, engine: AsyncEngine, pool: RawPool) -> None:
        self._dsn = dsn
        self._listen_dsn = listen_dsn
        self._engine = engine
        self.hot = pool

    @classmethod
    async def open(
        cls, url: str, options: DatabaseOptions, *, listen_url: str | None = None
    ) -> "Database":
        dsn = asyncpg_dsn(url)
        pool = await _open_hot_pool(dsn, options)
        engine = _engine(dsn, options)
        return cls(dsn, asyncpg_dsn(listen_url) if listen_url else dsn, engine, pool)

    async def close(self) -> None:
        await self._engine.dispose()
        await _close(self.hot, patience=5)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """One unit of work: committed when the block ends, rolled back when it raises."""
        with _errors_of_ours():
            async with self._engine.begin() as connection:
                yield connection

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """For queries: each statement sees its own instant, no transaction stays open."""
        with _errors_of_ours():
            async with self._engine.connect() as connection:
                yield await connection.execution_options(isolation_level="AUTOCOMMIT")

    @asynccontextmanager
    async def queue_pool(self) -> AsyncIterator[RawPool]:
        """A few connections for the queue, which listens on one of them.

        Cancelled on its way out, the queue keeps that one: a polite closing would wait for ever.
        """
        pool = await asyncpg.create_pool(
            self._listen_dsn, min_size=2, max_size=4, timeout=10, reset=_keep
        )
        try:
            yield pool
        finally:
            await _close(pool, patience=1)

    async def ping(self) -> None:
        """Raises one of `DATABASE_AWAY` when the server doesn't answer."""
        await self.hot.fetchval("SELECT 1")

    async def listener(self) -> RawConnection:
        """A connection of its own, for LISTEN; whoever asked for it closes it."""
        return await asyncpg.connect(self._listen_dsn, timeout=10)


@contextmanager
def _errors_of_ours() -> Iterator[None]:
    """The engine wraps its driver's errors: unwrap those that pass by themselves."""
    try:
        yield
    except DBAPIError as error:
        cause = error.orig.__cause__ if error.orig is not None else None
        if error.connection_invalidated or isinstance(cause, _PASSING):
            raise DatabaseAway(str(cause or error.orig)) from error
        raise
    except _PASSING_THROUGH_THE_ENGINE as error:
        raise DatabaseAway(str(error)) from error


async def _close(pool: RawPool, *, patience: float) -> None:
    """See out what is under way, and cut what doesn't end in time."""
    try:
        async with asyncio.timeout(patience):
            await pool.close()
    except TimeoutError:
        pool.terminate()


async def raw(connection: Connection) -> RawConnection:
    """The driver's connection under a transaction: what is done on it commits or rolls back with that."""
    proxy = await connection.get_raw_connection()
    driver: RawConnection | None = proxy.driver_connection
    if driver is None:
        raise RuntimeError("the connection is closed")
    if not driver.is_in_transaction():
        # The first statement opens it; the driver's own wouldn't.
        await connection.execute(_NOTHING)
    return driver


def _engine(dsn: str, options: DatabaseOptions) -> AsyncEngine:
    connect_args: dict[str, Any] = {}
    if options.pgbouncer:
        connect_args = {
            "prepared_statement_cache_size": 0,
            "prepared_statement_name_func": lambda: f"__holdfast_{uuid4()}__",
        }

    async def connect(**_: Any) -> RawConnection:
        return await asyncpg.connect(dsn, **_connection_options(options))

    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=connect,
        connect_args=connect_args,
        pool_size=options.pool_size,
        max_overflow=0,
        pool_recycle=1800,
        pool_use_lifo=True,
    )
    event.listen(engine.sync_engine, "checkout", _refuse_lost)
    return engine


def _refuse_lost(connection: Any, _record: object, _proxy: object) -> None:
    """Have the pool replace what its server has left: its driver knows, so nobody need ask the server."""
    if connection.driver_connection.is_closed():
        raise DisconnectionError


async def _open_hot_pool(dsn: str, options: DatabaseOptions) -> RawPool:
    settings = _connection_options(options)
    if not options.pgbouncer:
        settings["server_settings"] = {**settings["server_settings"], **_HOT_SETTINGS}
    try:
        return await asyncpg.create_pool(
            dsn,
            min_size=min(2, options.hot_pool_size),
            max_size=options.hot_pool_size,
            max_inactive_connection_lifetime=600,
            init=read_uuids_as_text,
            reset=_keep,
            **settings,
        )
    except CANNOT_CONNECT as error:
        raise unreachable(dsn, error) from error


def _connection_options(options: DatabaseOptions) -> dict[str, Any]:
    milliseconds = str(int(options.statement_timeout * 1000))
    return {
        "timeout": options.connect_timeout,
        "statement_cache_size": 0 if options.pgbouncer else 200,
        "server_settings": {}
        if options.pgbouncer
        else {
            "application_name": "holdfast",
            "statement_timeout": milliseconds,
            "idle_in_transaction_session_timeout": milliseconds,
        },
    }


async def _keep(_: RawConnection) -> None:
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


def place_of(url: str) -> str:
    """Where a database is, without who may enter and how."""
    parts = urlsplit(url)
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an address whose port isn't a number"
    return f"{parts.hostname or 'the local socket'}{port}{parts.path}"


def unreachable(dsn: str, error: BaseException) -> DatabaseUnusable:
    """One sentence, without the password."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return DatabaseUnusable(
        f"Can't reach Postgres at {place_of(dsn)}: {reason}. Check DATABASE_URL, and that the "
        "server is running and lets this machine in."
    )
