"""The HTTP client of all models: for streams of small pieces, as many of them as there are runs."""

import ssl

import httpcore2
import httpx2

from app.llm.connections import DirectBackend


def streaming_client() -> httpx2.AsyncClient:
    """A client with as many connections as there are streams; time-outs come with each request."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=256, keepalive_expiry=30)
    context = httpx2.create_ssl_context()
    return httpx2.AsyncClient(
        # Mounted rather than given as the transport, so that proxies of the environment still count.
        mounts={"all://": _DirectTransport(context, limits)},
        verify=context,
        limits=limits,
        timeout=httpx2.Timeout(60, pool=None),
    )


class _DirectTransport(httpx2.AsyncHTTPTransport):
    def __init__(self, context: ssl.SSLContext, limits: httpx2.Limits) -> None:
        super().__init__(verify=context, limits=limits)
        # The transport takes no network backend, its connection pool does.
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=DirectBackend(),
        )
