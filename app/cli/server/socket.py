"""The listening socket. It is opened first, so that an address in use fails the start before the rest runs."""

import errno
import socket
from contextlib import closing

from app.domain.errors import ConfigurationError

_BACKLOG = 2048


def listen(host: str, port: int, setting: str) -> "closing[socket.socket]":
    """A listening socket. Early connections are served once the server is ready.

    `setting` is the variable of the port; errors name it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return closing(socket.create_server((host, port), family=family, backlog=_BACKLOG))
    except socket.gaierror as error:
        raise _not_an_address(host) from error
    except OSError as error:
        match error.errno:
            case errno.EADDRINUSE:
                raise ConfigurationError(
                    f"Port {port} of {host} is in use: stop what listens there, or set {setting} to "
                    "another one (0 picks a free one)."
                ) from error
            case errno.EACCES:
                raise ConfigurationError(
                    f"Port {port} of {host} isn't allowed to this user: set {setting} to one above "
                    "1023."
                ) from error
            case _:
                raise _not_an_address(host) from error


def address(listener: socket.socket) -> str:
    """The address at which programs of this machine reach the server."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _not_an_address(host: str) -> ConfigurationError:
    return ConfigurationError(
        f"{host} isn't an address of this machine: set HOLDFAST_HOST to 127.0.0.1, or to one of its "
        "own addresses."
    )
