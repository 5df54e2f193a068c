"""How many connections the server has for us, and how many processes share them."""

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class ConnectionBudget:
    """Connections: those there are, and those that each of so many living processes may open."""

    available: int
    each: int
    processes: int

    @property
    def is_enough(self) -> bool:
        return self.each * max(1, self.processes) <= self.available


def connections_of(*, pool_size: int, hot_pool_size: int, pgbouncer: bool) -> int:
    """What one process opens on the server itself at most; a pooler has its own bound for the rest."""
    direct = QUEUE_CONNECTIONS + LISTENING
    return direct if pgbouncer else pool_size + hot_pool_size + direct


async def connection_budget(hot: RawPool, each: int) -> ConnectionBudget:
    return ConnectionBudget(
        available=await hot.fetchval(_CAPACITY), each=each, processes=await hot.fetchval(_PROCESSES)
    )


async def has_statement_timeout(hot: RawPool) -> bool:
    """Whether the server gives up what takes too long, on connections as they come."""
    return bool(await hot.fetchval("SELECT current_setting('statement_timeout') <> '0'"))
