"""Free ports, for tests that need a port number before a server listens."""

import random
import socket

_PORTS = range(20_000, 32_000)
"""Linux gives these to no connection and to no listener that asks for any port, so they stay free."""
_TRIES = 100


def free_port() -> int:
    """A port without a listener."""
    for port in random.SystemRandom().sample(_PORTS, _TRIES):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise OSError(f"none of {_TRIES} ports is free")
