"""Commands that set up an installation and check it.

The modules that they need are imported inside them, so that commands of clients start ten times faster.
"""

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from app.cli import environment
from app.cli.exit_codes import exit_with
from app.cli.options import Agents, Key, Url
from app.cli.setup import keys, packages
from app.cli.setup.new_folder import write_agents_folder
from app.domain.errors import ConfigurationError, DatabaseUnusable
from app.domain.principals import Scope

T = TypeVar("T")


def init(
    folder: Annotated[
        Path, typer.Argument(help="Folder to write into.", show_default="this folder")
    ] = Path(),
) -> None:
    """Write an agents folder that works without a key: agents, tools and a test. Overwrites nothing."""
    for path in _finish(partial(write_agents_folder, folder)):
        typer.echo(path)
    place = "" if folder == Path() else f" {shlex.quote(str(folder))}"
    typer.echo(f"Serve the agents with: holdfast dev{place}", err=True)


def install(
    folder: Annotated[
        Path, typer.Argument(help="Folder of the agents file.", show_default="this folder")
    ] = Path(),
    provider: Annotated[
        list[str] | None,
        typer.Option(help="Install the packages of this model provider instead. May be repeated."),
    ] = None,
) -> None:
    """Install the packages that an agents folder requires, or those of a model provider.

    The folder has a requirements.txt, or a pyproject.toml whose `project.dependencies` are read.
    """
    if provider:
        wanted = [
            one
            for name in provider
            for one in _finish(partial(packages.requirements_of_provider, name))
        ]
    else:
        wanted = _finish(partial(packages.requirements_in, folder))
    if wanted:
        _finish(partial(packages.install, wanted, folder))


def doctor(agents: Agents = None, url: Url = None, key: Key = None) -> None:
    """Check settings, agents, models, database and server, and say how to fix problems."""
    from app.cli.server import event_loop  # noqa: PLC0415  slow, see above
    from app.cli.setup import doctor as checks  # noqa: PLC0415  slow, see above

    settings = event_loop.prepare(least_level="error", agents=agents)
    event_loop.run(partial(checks.run_checks, settings, url, key))


BackupFile = Annotated[Path, typer.Argument(metavar="FILE", help="The file of the backup.")]


def backup(file: BackupFile) -> None:
    """Write the embedded database to a new file. Servers may run meanwhile."""
    from app.cli.server import event_loop  # noqa: PLC0415  slow, see above
    from app.cli.setup import backup as backups  # noqa: PLC0415  slow, see above

    settings = event_loop.prepare(least_level="error")
    _finish(partial(backups.back_up, file, settings))


def restore(file: BackupFile) -> None:
    """Make a new embedded database from a backup. Refuses to replace a database."""
    from app.cli.server import event_loop  # noqa: PLC0415  slow, see above
    from app.cli.setup import backup as backups  # noqa: PLC0415  slow, see above

    settings = event_loop.prepare(least_level="error")
    _finish(partial(backups.restore, file, settings))


def settings(
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
) -> None:
    """List all settings with their defaults."""
    typer.echo(environment.as_markdown() if markdown else environment.as_text())


def create_key(
    subject: Annotated[str, typer.Option(help="Subject of the key, as shown in audits.")],
    scope: Annotated[
        list[Scope], typer.Option(help="A scope of the key. Repeat the option for several.")
    ],
    tenant: Annotated[str, typer.Option(help="Tenant of the key.")] = "default",
) -> None:
    """Make a key. Prints the key to stderr and its entry for the keys file to stdout."""
    keys.new_key(subject, tenant, scope)


def hash_key() -> None:
    """Read a key from stdin and print its SHA-256 for the keys file."""
    typer.echo(keys.digest(typer.get_text_stream("stdin").read().strip()))


def _finish(work: Callable[[], T]) -> T:
    """Do the work. An expected error ends the process with its sentence."""
    try:
        return work()
    except (ConfigurationError, DatabaseUnusable) as error:
        exit_with(str(error))
