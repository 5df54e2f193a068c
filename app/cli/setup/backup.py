"""`holdfast backup` and `holdfast restore`: the embedded database as a file.

A backup is written beside its place and moved there when it is complete. A restore fills a new data folder and moves
it to its place when it is complete. So neither leaves half of anything, and neither replaces anything.
"""

import asyncio
import os
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree

import typer

from app.domain.errors import ConfigurationError, DatabaseUnusable
from app.embedded_postgres.dumps import read_dump, require_readable, write_dump
from app.embedded_postgres.server import EmbeddedPostgres, default_data_dir
from app.settings import Settings
from app.storage import migrations
from app.storage.contents import DatabaseContents, contents_of

_CLUSTER = "cluster"


def back_up(file: Path, settings: Settings) -> None:
    """Write the embedded database to a new file. A server may use it meanwhile."""
    _require_embedded(
        settings, f'pg_dump --format=custom --file={shlex.quote(str(file))} "$DATABASE_URL"'
    )
    data_dir = _data_dir(settings)
    if not (data_dir / _CLUSTER).exists():
        raise ConfigurationError(f"There is no database in {data_dir}: nothing was written.")
    if file.exists() or file.is_symlink():
        raise ConfigurationError(f"{file} exists, and nothing was written. Name a new file.")
    server = EmbeddedPostgres.start(data_dir)
    try:
        contents = asyncio.run(contents_of(server.url))
        if contents is None:
            raise ConfigurationError(f"The database in {data_dir} is empty: nothing was written.")
        with _new_file(file) as draft:
            write_dump(server, draft)
            require_readable(draft)
    finally:
        server.stop()
    typer.echo(
        f"Wrote {file}: {file.stat().st_size:,} bytes, with {_shown(contents)} of {data_dir}."
    )


def restore(file: Path, settings: Settings) -> None:
    """Make a new embedded database from a backup. Refuses if there is a database."""
    _require_embedded(
        settings,
        f'pg_restore --clean --if-exists --no-owner --dbname="$DATABASE_URL" {shlex.quote(str(file))}',
    )
    data_dir = _data_dir(settings)
    _require_no_database(data_dir)
    require_readable(file.absolute())
    data_dir.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{data_dir.name}-restore-", dir=data_dir.parent))
    try:
        contents = _filled(draft, file.absolute())
        _require_no_database(data_dir)
        data_dir.mkdir(mode=0o711, exist_ok=True)
        # Fails if a server has made a database meanwhile: a folder can't replace one that has files.
        (draft / _CLUSTER).rename(data_dir / _CLUSTER)
    except OSError as error:
        raise DatabaseUnusable(f"{data_dir} can't be written: {error}") from error
    finally:
        rmtree(draft, ignore_errors=True)
    typer.echo(f"Restored {_shown(contents)} into {data_dir}.")


def _filled(draft: Path, file: Path) -> DatabaseContents:
    server = EmbeddedPostgres.start(draft)
    try:
        read_dump(server, file)
        contents = asyncio.run(contents_of(server.url))
        if contents is None:
            raise ConfigurationError(f"{file} isn't a backup of a Holdfast database.")
        asyncio.run(migrations.upgrade(server.url))
        return contents
    finally:
        server.stop()


def _require_embedded(settings: Settings, instead: str) -> None:
    if settings.database_url is not None:
        raise ConfigurationError(
            "DATABASE_URL is set, and this command is for the embedded database. Use Postgres's own: "
            f"{instead}"
        )


def _require_no_database(data_dir: Path) -> None:
    if (data_dir / _CLUSTER).exists():
        raise ConfigurationError(
            f"There is a database in {data_dir}, and nothing was changed. Stop its servers and move it "
            f"away (mv {shlex.quote(str(data_dir))} {shlex.quote(f'{data_dir}-old')}), or choose another "
            "HOLDFAST_DATA_DIR."
        )


def _data_dir(settings: Settings) -> Path:
    return (settings.data_dir or default_data_dir()).expanduser().absolute()


@contextmanager
def _new_file(file: Path) -> Iterator[Path]:
    """A file that only this user may read. It gets its name when it is complete and on the disk."""
    try:
        number, name = tempfile.mkstemp(prefix=f".{file.name}-", dir=file.absolute().parent)
    except OSError as error:
        raise ConfigurationError(f"{file} can't be written: {error}") from error
    draft = Path(name)
    try:
        yield draft
        os.fsync(number)
        # A link never replaces a file that another process has made meanwhile.
        file.hardlink_to(draft)
    except FileExistsError:
        raise ConfigurationError(
            f"{file} exists, and nothing was written. Name a new file."
        ) from None
    finally:
        os.close(number)
        draft.unlink(missing_ok=True)


def _shown(contents: DatabaseContents) -> str:
    return f"{contents.threads:,} threads and {contents.runs:,} runs (revision {contents.revision})"
