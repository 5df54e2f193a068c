"""`holdfast dev`: a server that is replaced when a file of the agents folder changes.

The listening socket belongs to this process. A changed folder is loaded by a new server process on the same socket.
The old one is stopped only once the new one serves, and hands its runs over, so no run is lost. If the new one can't
start, the old one continues.
"""

import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import typer

from app.cli.server.folder_watch import FolderWatch
from app.cli.server.server_process import ServerProcess
from app.domain.errors import ConfigurationError

_POLL_SECONDS = 0.3


def develop(agents: Path, listener: socket.socket) -> None:
    """Serve and reload until Ctrl-C or SIGTERM."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    watch = FolderWatch(agents.parent)
    current = _started(agents, listener, None, ())
    try:
        while not stop.wait(_POLL_SECONDS):
            if changed := watch.changes():
                current = _started(agents, listener, current, changed)
            elif current is not None and not current.is_running:
                current.stop()
                current = None
                _print("The server has ended. It starts again when a file changes.")
    finally:
        if current is not None:
            current.stop()


def _started(
    agents: Path, listener: socket.socket, before: ServerProcess | None, changed: Sequence[str]
) -> ServerProcess | None:
    """A new server that replaces `before`; `before` itself if the new one can't start."""
    new = ServerProcess(listener, {"HOLDFAST_AGENTS": str(agents)})
    banner = new.wait_for_banner()
    if banner is None:
        new.stop()
        _print(
            "The server can't start; it is tried again when a file changes."
            if before is None
            else f"The change of {', '.join(changed)} can't be loaded. The server continues without it."
        )
        return before
    if before is not None:
        before.stop()
    _print(f"Reloaded after a change of {', '.join(changed)}." if changed else banner)
    return new


def _print(text: str) -> None:
    with suppress(BrokenPipeError):
        typer.echo(text)
        sys.stdout.flush()


def agents_file(folder: Path) -> Path:
    """The agents file of a folder, or the file itself."""
    file = folder / "agents.toml" if folder.is_dir() else folder
    if not file.is_file():
        raise ConfigurationError(f"There is no {file}. `holdfast init` makes one.")
    return file.absolute()
