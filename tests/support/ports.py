"""Ports that a test needs to know before anybody listens there."""

import socket


def free_port() -> int:
    """One that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
