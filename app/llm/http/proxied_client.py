"""Sends requests through proxies. The HTTP library knows their rules, and how to ask for a tunnel."""

import ssl

import httpx2

from app.llm.http.requests import PostRequest, TimeLimits
from app.llm.http.responses import HttpResponse


class ProxiedClient:
    """Uses the proxies that the environment names. They have no limit on connections."""

    def __init__(self, context: ssl.SSLContext, *, max_idle: int, idle_seconds: float) -> None:
        self._client = httpx2.AsyncClient(
            verify=context,
            limits=httpx2.Limits(
                max_connections=None,
                max_keepalive_connections=max_idle,
                keepalive_expiry=idle_seconds,
            ),
        )

    def has_proxy_for(self, url: httpx2.URL) -> bool:
        chosen = self._client._transport_for_url(url)  # noqa: SLF001  no public function tells it
        return chosen is not self._client._transport  # noqa: SLF001  as above

    async def send(self, request: PostRequest, body: bytes, limits: TimeLimits) -> HttpResponse:
        timeouts = {
            "connect": limits.connect,
            "write": limits.answer,
            "read": limits.answer,
            "pool": None,
        }
        sent = httpx2.Request(
            "POST",
            request.url,
            headers=request.headers,
            content=body,
            extensions={"timeout": timeouts},
        )
        response = await self._client.send(sent, stream=True)
        # The library reads the time-outs again for the body.
        timeouts["read"] = limits.idle
        return _ProxiedResponse(response)

    async def aclose(self) -> None:
        await self._client.aclose()


class _ProxiedResponse(HttpResponse):
    def __init__(self, response: httpx2.Response) -> None:
        super().__init__(response.status_code, response.headers)
        self._response = response
        self._pieces = response.aiter_raw()

    @property
    def is_complete(self) -> bool:
        return self._response.is_closed

    async def read(self) -> bytes:
        return await anext(self._pieces, b"")

    async def aclose(self) -> None:
        try:
            await self._pieces.aclose()
        finally:
            await self._response.aclose()
