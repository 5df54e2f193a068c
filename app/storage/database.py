"""The connections to Postgres: one engine for statements, one raw pool for the hot ones."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit
from weakref import WeakSet

import asyncpg
import structlog
from sqlalchemy import event, text
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError, DisconnectionError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from app.domain.errors import DatabaseAway, DatabaseBusy, DatabaseUnusable, Reason
from app.storage import room
from app.storage.hot_pool import (
    KEEPALIVE_COUNT,
    KEEPALIVE_INTERVAL,
    HotPool,
    OurConnection,
    keep_alive,
)
from app.storage.outages import DISTRUSTED, PASSING, Outages, reason_of

Connection: TypeAlias = AsyncConnection
RawConnection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
RawPool: TypeAlias = HotPool
QueuePool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"

OLDEST_SERVER = 14
QUEUE_CONNECTIONS = 4
CLOSING = 1.0
"""Seconds for connections to be closed politely."""
SILENCE = 2.0
"""Seconds that the server gets on top of its own time-outs, before it counts as silent."""
DATABASE_AWAY: tuple[type[Exception], ...] = (*PASSING, DatabaseAway)
"""What passes by itself: the same statement may succeed in a moment."""
_OF_THE_ENGINE: tuple[type[Exception], ...] = (DBAPIError, *PASSING)
CANNOT_CONNECT: tuple[type[Exception], ...] = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    ValueError,
)
"""What a first connection may fail with: a place, name or password that is wrong, or nobody there."""

log = structlog.get_logger(__name__)

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
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^:\[\]]*)(?::\d{1,5})?")


def asyncpg_dsn(url: str) -> str:
    """Any common spelling of a Postgres URL as the one that asyncpg reads."""
    parts = _parts_of(url)
    query = [(key, value) for key, value in parse_qsl(parts.query) if key not in _LIBPQ_ONLY]
    query = [("sslmode" if key == "ssl" else key, value) for key, value in query]
    # Put together by hand: urlunsplit drops the slashes of a URL without a host.
    return f"postgresql://{parts.netloc}{parts.path}" + (f"?{urlencode(query)}" if query else "")


def _parts_of(url: str) -> SplitResult:
    """Checked here, because whoever stumbles over a password later tells what it stumbled over."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _unreadable() from None
    if parts.scheme.partition("+")[0] not in ("postgres", "postgresql"):
        raise DatabaseUnusable(
            "DATABASE_URL isn't a Postgres URL such as "
            "postgresql://user:password@host:5432/database"
        )
    hosts = parts.netloc.rpartition("@")[2].split(",")
    if "@" in parts.path + parts.query or parts.fragment or not all(map(_HOST.fullmatch, hosts)):
        raise _unreadable()
    return parts


def _unreadable() -> DatabaseUnusable:
    return DatabaseUnusable(
        "DATABASE_URL can't be read: its host or its port is none. Special characters of a password are "
        "written as %40 for @, %3A for :, %2F for /, %3F for ? and %23 for #."
    )


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


class Database:
    """Opened once per process by the composition root; every connection of ours comes from here."""

    def __init__(
        self,
        dsn: str,
        listen_dsn: str,
        options: DatabaseOptions,
        engine: AsyncEngine,
        of_the_engine: WeakSet[RawConnection],
        hot: HotPool,
        outages: Outages,
    ) -> None:
        self._dsn = dsn
        self._listen_dsn = listen_dsn
        self._options = options
        self._engine = engine
        self._of_the_engine = of_the_engine
        self._outages = outages
        self.hot = hot

    @classmethod
    async def open(
        cls, url: str, options: DatabaseOptions, *, listen_url: str | None = None
    ) -> "Database":
        dsn = asyncpg_dsn(url)
        outages = Outages()
        hot = await _open_hot_pool(dsn, options, outages)
        of_the_engine: WeakSet[RawConnection] = WeakSet()
        engine = _engine(dsn, options, of_the_engine)
        listen_dsn = asyncpg_dsn(listen_url) if listen_url else dsn
        return cls(dsn, listen_dsn, options, engine, of_the_engine, hot, outages)

    async def close(self) -> None:
        """See out what is under way, and leave what doesn't end in time."""
        # Closed by ourselves, all at once: the engine would wait for one after the other.
        await self._engine.dispose(close=False)
        async with asyncio.TaskGroup() as closing:
            closing.create_task(_close(self.hot, patience=CLOSING))
            for connection in self._of_the_engine:
                closing.create_task(_leave(connection))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """One unit of work: committed when the block ends, rolled back when it raises."""
        async with self._errors_of_ours():
            async with self._engine.begin() as connection:
                yield connection

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """For queries: each statement sees its own instant, no transaction stays open."""
        async with self._errors_of_ours():
            async with self._engine.connect() as connection:
                yield await connection.execution_options(isolation_level="AUTOCOMMIT")

    @asynccontextmanager
    async def queue_pool(self) -> AsyncIterator[QueuePool]:
        """A few connections for the queue, which listens on one of them.

        Cancelled on its way out, the queue keeps that one: a polite closing would wait for ever.
        """
        with self._noting_failures():
            pool = await asyncpg.create_pool(
                self._listen_dsn,
                min_size=2,
                max_size=QUEUE_CONNECTIONS,
                reset=_keep,
                init=self._keep_alive,
                **_connection_options(self._options, direct=True),
            )
            try:
                yield pool
            finally:
                await _close(pool, patience=CLOSING)

    async def ping(self) -> None:
        """Raises one of `DATABASE_AWAY` when the server doesn't answer, or doesn't let us work."""
        if await self.hot.fetchval("SELECT current_setting('transaction_read_only') = 'on'"):
            self.hot.distrust()
            raise DatabaseAway("the server takes no writes", Reason.READ_ONLY)
        if (reason := self._outages.lately()) is not None:
            raise DatabaseAway("it is there, and others have failed a moment ago", reason)
        if self._outages.lacks_room:
            await self._look_for_room()

    async def _look_for_room(self) -> None:
        try:
            async with self.transaction() as connection:
                await room.take_some(connection)
        except ProgrammingError as error:
            # We may make no temporary tables here: whoever needs room will find out.
            log.debug("room_not_looked_for", error=str(error.orig))
        self._outages.found_room()

    async def listener(self) -> RawConnection:
        """A connection outside of the pools, for LISTEN or for another loop; whoever asked closes it."""
        with self._noting_failures():
            connection: RawConnection = await asyncpg.connect(
                self._listen_dsn, **_connection_options(self._options, direct=True)
            )
            await self._keep_alive(connection)
        return connection

    async def _keep_alive(self, connection: RawConnection) -> None:
        keep_alive(connection, self._options.tcp_keepalive)

    @contextmanager
    def _noting_failures(self) -> Iterator[None]:
        try:
            yield
        except PASSING as error:
            self._outages.failed(error)
            raise

    @asynccontextmanager
    async def _errors_of_ours(self) -> AsyncIterator[None]:
        """The engine wraps its driver's errors: unwrap those that pass by themselves."""
        try:
            yield
        except PoolTimeout as error:
            busy = DatabaseBusy(f"no connection got free in {self._options.pool_timeout} s")
            self._outages.failed(busy)
            raise busy from error
        except _OF_THE_ENGINE as error:
            cause = _cause_of(error)
            if cause is None:
                raise
            reason = self._outages.failed(cause)
            if reason in DISTRUSTED:
                self.hot.distrust()
            raise DatabaseAway(str(cause), reason) from error
        self._outages.worked()


def _cause_of(error: BaseException) -> BaseException | None:
    """What the driver said, if that passes by itself."""
    if not isinstance(error, DBAPIError):
        return error
    cause = error.orig.__cause__ if error.orig is not None else None
    if isinstance(cause, PASSING):
        return cause
    return DatabaseAway(str(cause or error.orig)) if error.connection_invalidated else None


async def _close(pool: "HotPool | QueuePool", *, patience: float) -> None:
    """See out what is under way, and cut what doesn't end in time."""
    try:
        async with asyncio.timeout(patience):
            await pool.close()
    except TimeoutError:
        pool.terminate()


async def _leave(connection: RawConnection) -> None:
    try:
        await connection.close(timeout=CLOSING)
    except PASSING:
        connection.terminate()


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


def _engine(dsn: str, options: DatabaseOptions, opened: WeakSet[RawConnection]) -> AsyncEngine:
    async def connect(**_: Any) -> RawConnection:
        connection: RawConnection = await asyncpg.connect(dsn, **_connection_options(options))
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
    if isinstance(cause, PASSING) and reason_of(cause) in DISTRUSTED:
        context.is_disconnect = True


def _refuse_lost(connection: Any, _record: object, _proxy: object) -> None:
    """Have the pool replace what its server has left: its driver knows, so nobody need ask the server."""
    if connection.driver_connection.is_closed():
        raise DisconnectionError


async def _open_hot_pool(dsn: str, options: DatabaseOptions, outages: Outages) -> HotPool:
    settings = _connection_options(options)
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
            reset=_keep,
            **settings,
        )
    except CANNOT_CONNECT as error:
        raise unreachable(dsn, error) from error
    return HotPool(
        pool, outages, patience=options.pool_timeout, lifetime=options.connection_lifetime
    )


def _connection_options(options: DatabaseOptions, *, direct: bool = False) -> dict[str, Any]:
    """The server ends what takes too long; a server that is silent is left, a little later.

    A pooler knows none of a session's settings: there they belong to the role.
    """
    pooled = options.pgbouncer and not direct
    return {
        "timeout": options.connect_timeout,
        "command_timeout": options.statement_timeout + SILENCE,
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
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an address that can't be read"
    hosts = [_host(one) for one in parts.netloc.rpartition("@")[2].split(",")]
    if None in hosts:
        return "an address whose port isn't a number"
    return f"{','.join(filter(None, hosts)) or 'the local socket'}{parts.path}"


def _host(text: str) -> str | None:
    """One of maybe several; what should be a port and is none may be a secret."""
    bare = text.rpartition("]")[2]
    _, colon, port = bare.partition(":")
    return None if colon and not port.isdigit() else text


def unreachable(dsn: str, error: BaseException) -> DatabaseUnusable:
    """One sentence, without the password."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if "unsupported startup parameter" in reason:
        reason = f"{reason}; for a PgBouncer in between, set HOLDFAST_PGBOUNCER=1"
    return DatabaseUnusable(
        f"Can't reach Postgres at {place_of(dsn)}: {reason}. Check DATABASE_URL, and that the "
        "server is running and lets this machine in."
    )
