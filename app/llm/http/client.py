"""The HTTP client of all models, made for many concurrent streams of small chunks."""

from typing import Self
from urllib.request import getproxies

import httpx2

from app.llm.http.connecting import Connector
from app.llm.http.connection_pool import ModelConnections
from app.llm.http.content_encodings import decoded
from app.llm.http.proxied_client import ProxiedClient
from app.llm.http.requests import PostRequest, TimeLimits
from app.llm.http.responses import HttpResponse

MAX_IDLE_CONNECTIONS = 256
"""Of each server; of all proxies together."""
IDLE_SECONDS = 30.0
"""How long an idle connection is kept."""


class StreamingClient:
    """Sends requests over connections of its own, or through the proxies that the environment names."""

    def __init__(self) -> None:
        context = httpx2.create_ssl_context()
        context.set_alpn_protocols(["http/1.1"])
        self._direct = ModelConnections(
            Connector(context), max_idle=MAX_IDLE_CONNECTIONS, idle_seconds=IDLE_SECONDS
        )
        self._proxied = (
            ProxiedClient(context, max_idle=MAX_IDLE_CONNECTIONS, idle_seconds=IDLE_SECONDS)
            if {"http", "https", "all"} & getproxies().keys()
            else None
        )

    async def send(self, request: PostRequest, body: bytes, limits: TimeLimits) -> HttpResponse:
        """Return the response when its head has arrived. Raises `httpx2.HTTPError`."""
        if self._proxied is not None and self._proxied.has_proxy_for(request.url):
            return decoded(await self._proxied.send(request, body, limits))
        return decoded(await self._direct.send(request, body, limits))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        self._direct.close()
        if self._proxied is not None:
            await self._proxied.aclose()
