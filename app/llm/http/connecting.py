"""Opens connections to model servers."""

import asyncio
import socket
import ssl
from typing import TypeAlias

import httpx2

from app.llm.http.connection import Connection
from app.llm.http.read_pacing import ReadPacing
from app.llm.http.requests import Server

ADDRESS_TIMEOUT_SECONDS = 1.0
"""Seconds after which the host's next address is tried."""

_Address: TypeAlias = tuple[socket.AddressFamily, str]


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
        except OSError as error:
            raise httpx2.ConnectError(str(error)) from error

    async def _connect(self, server: Server) -> Connection:
        """Connect to the address of the host that answers first. The last address may take longer."""
        found = await asyncio.get_running_loop().getaddrinfo(
            server.host, server.port, type=socket.SOCK_STREAM
        )
        *others, last = [(family, str(address[0])) for family, _, _, _, address in found]
        late = None
        for address in others:
            try:
                async with asyncio.timeout(ADDRESS_TIMEOUT_SECONDS):
                    return await self._connected(server, address)
            except TimeoutError:
                late = address
            except OSError:
                continue
        try:
            return await self._connected(server, last)
        except OSError:
            if late is None:
                raise
        return await self._connected(server, late)

    async def _connected(self, server: Server, address: _Address) -> Connection:
        family, ip = address
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: Connection(self._pacing),
            ip,
            server.port,
            family=family,
            ssl=self._context if server.is_encrypted else None,
            server_hostname=server.host if server.is_encrypted else None,
        )
        return connection
