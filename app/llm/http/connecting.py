"""Opens connections to model servers."""

import asyncio
import socket
import ssl
from typing import Any, TypeAlias

import httpx2

from app.llm.http.connection import Connection
from app.llm.http.read_pacing import ReadPacing
from app.llm.http.requests import Server

ADDRESS_TIMEOUT_SECONDS = 1.0
"""Seconds after which the host's next address is tried."""

_Address: TypeAlias = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[Any, ...]]
"""As `getaddrinfo` finds it."""


class Connector:
    """Connects to servers, with the certificates of `context`. All connections share the pace of reading."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._pacing = ReadPacing()

    async def connect(self, server: Server, timeout: float) -> Connection:
        """Connect, and agree on TLS if the server has it."""
        try:
            async with asyncio.timeout(timeout):
                return await self._connect(server)
        except TimeoutError:
            raise httpx2.ConnectTimeout("no connection in time") from None
        except (OSError, ValueError) as error:
            # ValueError: a name that no host or certificate can have.
            raise httpx2.ConnectError(str(error)) from error

    async def _connect(self, server: Server) -> Connection:
        connected = await _connected_socket(server)
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(self._pacing),
            sock=connected,
            ssl=self._context if server.is_encrypted else None,
            server_hostname=server.host if server.is_encrypted else None,
        )
        return connection


async def _connected_socket(server: Server) -> socket.socket:
    """Connect to the address of the host that answers first. The last address may take longer."""
    *others, last = await asyncio.get_running_loop().getaddrinfo(
        server.host, server.port, type=socket.SOCK_STREAM
    )
    late = None
    for address in others:
        try:
            async with asyncio.timeout(ADDRESS_TIMEOUT_SECONDS):
                return await _socket_of(address)
        except TimeoutError:
            late = address
        except OSError:
            continue
    try:
        return await _socket_of(last)
    except OSError:
        if late is None:
            raise
    return await _socket_of(late)


async def _socket_of(address: _Address) -> socket.socket:
    """A socket that is connected to this address."""
    family, kind, protocol, _, target = address
    connected = socket.socket(family, kind, protocol)
    try:
        connected.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connected, target)
    except BaseException:
        connected.close()
        raise
    return connected
