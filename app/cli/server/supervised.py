"""A server that another process has started, with that process's listening socket."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import closing

from msgspec import Struct


class Supervised(Struct, frozen=True):
    """The numbers of the inherited sockets."""

    listening: int
    supervisor: int

    def listener(self) -> "closing[socket.socket]":
        return closing(socket.socket(fileno=self.listening))

    def report(self, banner: str) -> None:
        """Tell the supervisor that the server serves."""
        with socket.socket(fileno=self.supervisor) as link:
            link.sendall(f"{banner}\0".encode())
            link.detach()

    def on_supervisor_lost(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        """Stop when the supervisor is dead, which closes its end of the connection."""

        def lost() -> None:
            loop.remove_reader(self.supervisor)
            stop()

        loop.add_reader(self.supervisor, lost)
