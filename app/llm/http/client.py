"""The HTTP client of all models, made for many concurrent streams of small chunks."""

import ssl
from typing import Any

import httpcore2
import httpx2

from app.llm.http.asyncio_backend import DirectBackend


def streaming_client() -> httpx2.AsyncClient:
    """Return a client without a limit on connections. Time-outs are set for each request."""
    return _DirectClient(
        verify=httpx2.create_ssl_context(),
        limits=httpx2.Limits(
            max_connections=None, max_keepalive_connections=256, keepalive_expiry=30
        ),
        timeout=httpx2.Timeout(60, pool=None),
    )


class _DirectClient(httpx2.AsyncClient):
    """Uses our transport if no proxy is configured. Passed as `transport`, it would disable proxies."""

    def _init_transport(self, *_: Any, **options: Any) -> httpx2.AsyncBaseTransport:
        return _DirectTransport(options["verify"], options["limits"])


class _DirectTransport(httpx2.AsyncHTTPTransport):
    def __init__(self, context: ssl.SSLContext, limits: httpx2.Limits) -> None:
        super().__init__(verify=context, limits=limits)
        # The transport takes no network backend, but its connection pool does.
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=DirectBackend(),
        )
