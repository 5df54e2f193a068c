"""The process that is forked: it imports Holdfast once, and begins a copy of itself for each request.

Run as a script, so that it imports nothing of the tests. Its argument is the number of a socket. A request on that
has three file descriptors for input, output and errors, and one that gets the exit code.
"""

import importlib
import json
import os
import select
import signal
import socket
import sys
from typing import Any, NoReturn

MODULES = (
    "app.cli",
    "app.cli.commands",
    "app.cli.server.serving",
    "app.bootstrap.application",
    "uvloop",
)
_MAX_REQUEST_BYTES = 1 << 20
_MAX_FILES = 65_536


def main(control: socket.socket) -> None:
    for name in MODULES:
        importlib.import_module(name)
    woken, wakes = os.pipe()
    for end in (woken, wakes):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # Ctrl-C in a terminal goes to all processes of the group. The test stops what it has started.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    exit_codes_to: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([control.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _report_exits(exit_codes_to)
        if control.fileno() in ready:
            message, files, _, _ = socket.recv_fds(control, _MAX_REQUEST_BYTES, 4)
            if not message:
                return
            pid = os.fork()
            if pid == 0:
                control.detach()
                _become(json.loads(message), files[:3])
            for file in files[:3]:
                os.close(file)
            exit_codes_to[pid] = files[3]
            control.send(str(pid).encode())


def _report_exits(exit_codes_to: dict[int, int]) -> None:
    for pid, file in list(exit_codes_to.items()):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            os.write(file, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(file)
            del exit_codes_to[pid]


def _become(request: dict[str, Any], standard: list[int]) -> NoReturn:
    """Run the command as a process that was just started would."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for target, file in enumerate(standard):
        os.dup2(file, target)
    os.closerange(3, _MAX_FILES)
    # The streams of the parent would write to the same files, but belong to its terminal.
    sys.stdin = open(0, closefd=False)
    sys.stdout = open(1, "w", closefd=False)
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["command"]
    sys.path.insert(0, os.path.dirname(sys.argv[0]))
    from app.cli import main as run  # noqa: PLC0415  imported by the parent

    run()
    sys.exit()


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
