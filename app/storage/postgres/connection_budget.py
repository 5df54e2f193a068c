"""Compares the server's connection limit with what all processes may open."""

from msgspec import Struct

from app.storage.postgres.connect import QUEUE_CONNECTIONS
from app.storage.postgres.database import RawPool

_CAPACITY = """
SELECT least(
    current_setting('max_connections')::int
        - current_setting('superuser_reserved_connections')::int
        - coalesce(current_setting('reserved_connections', true)::int, 0),
    (SELECT nullif(rolconnlimit, -1) FROM pg_roles WHERE rolname = current_user),
    (SELECT nullif(datconnlimit, -1) FROM pg_database WHERE datname = current_database()))
"""
_PROCESSES = "SELECT count(*) FROM workers WHERE heartbeat_at > now() - interval '1 minute'"
LISTENING = 1


class ConnectionBudget(Struct, frozen=True):
    """The available connections, and how many each of the living processes may open."""

    available: int
    each: int
    processes: int

    @property
    def is_enough(self) -> bool:
        return self.each * max(1, self.processes) <= self.available


def connections_of(*, pool_size: int, hot_pool_size: int, pgbouncer: bool) -> int:
    """The most connections that one process opens on the server itself, without those of a pooler."""
    direct = QUEUE_CONNECTIONS + LISTENING
    return direct if pgbouncer else pool_size + hot_pool_size + direct


async def connection_budget(pool: RawPool, each: int) -> ConnectionBudget:
    return ConnectionBudget(
        available=await pool.fetchval(_CAPACITY),
        each=each,
        processes=await pool.fetchval(_PROCESSES),
    )


async def has_statement_timeout(pool: RawPool) -> bool:
    """Whether new connections have a statement time-out."""
    return bool(await pool.fetchval("SELECT current_setting('statement_timeout') <> '0'"))
