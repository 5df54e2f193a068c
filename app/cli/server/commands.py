"""Commands that run a process: a server, a worker, a migration.

The modules that they need are imported inside them, so that commands of clients start ten times faster.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from app.cli import environment
from app.cli.exit_codes import exit_with
from app.cli.options import Agents
from app.domain.errors import ConfigurationError

Port = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="Port to listen on; 0 picks a free one.",
        show_default="HOLDFAST_PORT, or 8000",
    ),
]
Host = Annotated[
    str | None,
    typer.Option(help="Address to listen on.", show_default="HOLDFAST_HOST, or 127.0.0.1"),
]


@contextmanager
def _importing() -> Generator[None]:
    """Never looks for garbage among the imported objects: they stay, and scanning them takes a third of a start."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def serve(
    port: Port = None,
    host: Host = None,
    agents: Agents = None,
    processes: Annotated[
        str | None,
        typer.Option(
            help="Number of processes behind the port; `auto` is one for each CPU core.",
            show_default="HOLDFAST_PROCESSES, or 1",
        ),
    ] = None,
    inherited: Annotated[int | None, typer.Option("--socket", hidden=True)] = None,
    supervisor: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Serve HTTP, and execute runs unless HOLDFAST_ROLE is `api`."""
    with _importing():
        from app.cli.server import event_loop, serving  # noqa: PLC0415  slow, see above
        from app.cli.server.supervised import Supervised  # noqa: PLC0415  slow, see above

    supervised = None
    settings = event_loop.prepare(port=port, host=host, agents=agents, processes=processes)
    if inherited is not None and supervisor is not None:
        supervised = Supervised(inherited, supervisor)
    elif settings.processes > 1:
        from app.cli.server.replicas import serve_in_processes  # noqa: PLC0415  slow, see above

        raise typer.Exit(event_loop.with_expected_errors(partial(serve_in_processes, settings)))
    event_loop.run(partial(serving.serve, settings, supervised=supervised))


def develop(
    folder: Annotated[
        Path, typer.Argument(help="The agents file, or its folder.", show_default="this folder")
    ] = Path(),
    port: Port = None,
    host: Host = None,
) -> None:
    """Serve the agents of a folder, and reload them when a Python or TOML file in it changes.

    The old server hands its runs over to the new one. If the change can't be loaded, the old server says why
    and continues.
    """
    from app.cli.server import development  # noqa: PLC0415  slow, see above
    from app.cli.server.socket import listen  # noqa: PLC0415  slow, see above

    settings = environment.read_settings(port=port, host=host)
    try:
        file = development.agents_file(folder)
        with listen(settings.host, settings.port, "HOLDFAST_PORT") as listener:
            development.develop(file, listener)
    except ConfigurationError as error:
        exit_with(str(error))


def worker(agents: Agents = None) -> None:
    """Execute runs. HTTP is served only for /health and /metrics, at HOLDFAST_HEALTH_PORT."""
    with _importing():
        from app.cli.server import event_loop, serving  # noqa: PLC0415  slow, see above

    event_loop.run(partial(serving.work, event_loop.prepare(agents=agents)))


def migrate() -> None:
    """Migrate the database of DATABASE_URL to the schema of this version."""
    with _importing():
        from app.cli.server import event_loop, serving  # noqa: PLC0415  slow, see above

    event_loop.run(partial(serving.migrate, event_loop.prepare()))
