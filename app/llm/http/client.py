"""The HTTP client of all models, made for many concurrent streams of small chunks."""

import ssl
from typing import Any

import httpx2

from app.llm.http.asyncio_backend import DirectBackend
from app.llm.http.connection_pool import ModelConnections

MAX_IDLE_CONNECTIONS = 256
"""Of each server; of all proxies together."""
IDLE_SECONDS = 30.0
"""How long an idle connection is kept."""


def streaming_client() -> httpx2.AsyncClient:
    """Return a client without a limit on connections. Time-outs are set for each request."""
    return _DirectClient(
        verify=httpx2.create_ssl_context(),
        limits=httpx2.Limits(
            max_connections=None,
            max_keepalive_connections=MAX_IDLE_CONNECTIONS,
            keepalive_expiry=IDLE_SECONDS,
        ),
        timeout=httpx2.Timeout(60, pool=None),
    )


class _DirectClient(httpx2.AsyncClient):
    """Uses our transport if no proxy is configured. Passed as `transport`, it would disable proxies."""

    def _init_transport(self, *_: Any, **options: Any) -> httpx2.AsyncBaseTransport:
        return _DirectTransport(options["verify"])


class _DirectTransport(httpx2.AsyncHTTPTransport):
    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(verify=context)
        # The transport takes no pool and no network backend.
        self._pool = ModelConnections(
            context, DirectBackend(), max_idle=MAX_IDLE_CONNECTIONS, idle_seconds=IDLE_SECONDS
        )
