"""The health check of a container: exits with 0 if the server or the worker of this container responds."""

import http.client
import os
import sys
from collections.abc import Iterable

_PORTS = ("HOLDFAST_PORT", "HOLDFAST_HEALTH_PORT")
"""A server listens on the first, a worker on the second."""
_TIMEOUT_SECONDS = 2.0


def is_alive(port: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/health/live")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()


def _ports() -> Iterable[str]:
    return (port for name in _PORTS if (port := os.environ.get(name, "")).isdigit())


if __name__ == "__main__":
    sys.exit(not any(map(is_alive, _ports())))
