"""Parses database URLs, and shows them without secrets."""

import re
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from app.domain.errors import DatabaseUnusable

_LIBPQ_ONLY = frozenset(
    {"channel_binding", "gssencmode", "sslcompression", "connect_timeout", "pgbouncer"}
)
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^:\[\]]*)(?::\d{1,5})?")


def asyncpg_dsn(url: str) -> str:
    """Convert any common form of a Postgres URL to the one that asyncpg reads."""
    parts = _parts_of(url)
    query = [(key, value) for key, value in parse_qsl(parts.query) if key not in _LIBPQ_ONLY]
    query = [("sslmode" if key == "ssl" else key, value) for key, value in query]
    # Not `urlunsplit`: it drops the slashes of a URL without a host.
    return f"postgresql://{parts.netloc}{parts.path}" + (f"?{urlencode(query)}" if query else "")


def _parts_of(url: str) -> SplitResult:
    """Check the URL here: the error of a later parser could show the password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _unreadable() from None
    if parts.scheme.partition("+")[0] not in ("postgres", "postgresql"):
        raise DatabaseUnusable(
            "DATABASE_URL isn't a Postgres URL such as postgresql://user@host:5432/database"
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


def place_of(url: str) -> str:
    """Host, port and name of a database, without user and password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an address that can't be read"
    hosts = [_host(one) for one in parts.netloc.rpartition("@")[2].split(",")]
    if None in hosts:
        return "an address whose port isn't a number"
    return f"{','.join(filter(None, hosts)) or 'the local socket'}{parts.path}"


def _host(text: str) -> str | None:
    """The host, or None if its port isn't a number: that text may be a part of the password."""
    bare = text.rpartition("]")[2]
    _, colon, port = bare.partition(":")
    return None if colon and not port.isdigit() else text


def unreachable(dsn: str, error: BaseException) -> DatabaseUnusable:
    """The error for a server that can't be reached, without the password."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if "unsupported startup parameter" in reason:
        reason = f"{reason}; for a PgBouncer in between, set HOLDFAST_PGBOUNCER=1"
    return DatabaseUnusable(
        f"Can't reach Postgres at {place_of(dsn)}: {reason}. Check DATABASE_URL, and that the "
        "server is running and lets this machine in."
    )
