"""A server process that this process starts, with this process's listening socket."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping

STOP_TIMEOUT_SECONDS = 30.0
_END_OF_BANNER = b"\0"


class ServerProcess:
    """A server process, and a connection on which it reports that it serves.

    The process stops when its end of the connection finds this process dead.
    """

    def __init__(self, listener: socket.socket, settings: Mapping[str, str]) -> None:
        """`settings` are environment variables; they win over those of this process."""
        self._link, theirs = socket.socketpair()
        self._received = b""
        with theirs:
            shared = (listener.fileno(), theirs.fileno())
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "holdfast", "serve"),
                    *("--socket", str(shared[0]), "--supervisor", str(shared[1])),
                ],
                env={**os.environ, **settings},
                pass_fds=shared,
                # Not this process's group: Ctrl-C stops this process, which stops the servers.
                process_group=0,
            )

    def fileno(self) -> int:
        """The connection, for selectors. It is readable when there is a report to `receive`."""
        return self._link.fileno()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def banner(self) -> str | None:
        """What the server prints once it serves; None before."""
        if not self._received.endswith(_END_OF_BANNER):
            return None
        return self._received.removesuffix(_END_OF_BANNER).decode()

    def receive(self) -> bool:
        """Read a report. Returns False if the process has ended."""
        try:
            chunk = self._link.recv(65_536)
        except ConnectionResetError:
            chunk = b""
        self._received += chunk
        return chunk != b""

    def wait_for_banner(self) -> str | None:
        """The banner, or None if the server has failed to start."""
        while self.banner is None:
            if not self.receive():
                self._process.wait()
                return None
        return self.banner

    def terminate(self) -> None:
        """Ask it to stop gracefully. The second time it stops at once."""
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def reap(self) -> int:
        """Wait for the end of a process that has closed its connection; returns its exit code."""
        self._link.close()
        return self._process.wait()

    def stop(self) -> None:
        """Stop it gracefully and wait for its end."""
        self._process.terminate()
        with self._link:
            try:
                self._process.wait(STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
