"""Dumps of the embedded database, by the programs pg_dump and pg_restore of the wheel."""

import os
from pathlib import Path

from app.domain.errors import DatabaseUnusable
from app.embedded_postgres import programs
from app.embedded_postgres.programs import ServerUser
from app.embedded_postgres.server import EmbeddedPostgres

_TIMEOUT_SECONDS = 24 * 3600.0


def write_dump(server: EmbeddedPostgres, file: Path) -> None:
    """Write one instant of the database. The server may be in use meanwhile."""
    error = _run("pg_dump", "--format=custom", f"--file={file}", f"--dbname={server.dsn}")
    if error is not None:
        raise DatabaseUnusable(f"The embedded database can't be dumped to {file}: {error}")


def read_dump(server: EmbeddedPostgres, file: Path) -> None:
    """Restore a dump into an empty database: all of it or nothing."""
    restore = ("--single-transaction", "--exit-on-error", "--no-owner", f"--dbname={server.dsn}")
    error = _run("pg_restore", *restore, str(file))
    if error is not None:
        raise DatabaseUnusable(f"{file} can't be restored: {error}")


def require_readable(file: Path) -> None:
    """Refuse a file that isn't a complete dump in pg_dump's custom format."""
    error = _run("pg_restore", "--file=/dev/null", str(file))
    if error is not None:
        raise DatabaseUnusable(
            f"{file} isn't a complete dump, as `holdfast backup` or `pg_dump --format=custom` write it: "
            f"{error}"
        )


def _run(program: str, *arguments: str) -> str | None:
    """Run it as the current user, who also reads or writes the file."""
    user = ServerUser(os.geteuid(), os.getegid())
    return programs.run(program, *arguments, user=user, folder=Path("/"), timeout=_TIMEOUT_SECONDS)
