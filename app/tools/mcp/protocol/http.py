"""The HTTP client for servers at an address, within bounds.

The library holds one exchange of streams for all calls, and an exception of one request ends it. So failures of
the network become answers with an error code here, and harm only their own call.
"""

import json
from collections.abc import AsyncIterator, Mapping

import httpx2

from app.domain.errors import ConfigurationError
from app.tools.mcp.client import AccessTokens, AuthorizationNeeded, ServerAway
from app.tools.mcp.server_spec import McpServerSpec

NOT_SENT = -32091
"""The code of our own answer for a request that the server did not get."""
BROKEN = -32090
"""The code of our own answer for a request whose answer was lost."""
NOT_AUTHORIZED = -32092
"""The code of our own answer for a request for which a person has to give access first."""
MAX_BODY_BYTES = 4 << 20
MAX_EVENT_BYTES = 1 << 20
_WRITE_TIMEOUT_SECONDS = 30.0
_IDLE_TIMEOUT_SECONDS = 90.0
_UNAUTHORIZED = 401
_GATEWAY_STATUSES = frozenset({500, 502, 504})
_REFUSED_STATUSES = {
    401: "it refuses the credentials (401): check auth_env or oauth",
    403: "it refuses the credentials (403): check auth_env, or the scopes of oauth",
    429: "it has too many requests (429)",
    503: "it is temporarily unavailable (503)",
}


def http_client(
    spec: McpServerSpec, environ: Mapping[str, str], tokens: AccessTokens | None = None
) -> httpx2.AsyncClient:
    """A client for the server's address, with the bearer token or with access tokens."""
    headers = {"accept-encoding": "identity"}
    if spec.auth_env is not None:
        token = environ.get(spec.auth_env, "")
        if not token:
            raise ConfigurationError(f"the variable {spec.auth_env} of auth_env isn't set")
        headers["authorization"] = f"Bearer {token}"
    timeout = httpx2.Timeout(
        connect=spec.startup_timeout,
        read=max(_IDLE_TIMEOUT_SECONDS, spec.timeout),
        write=_WRITE_TIMEOUT_SECONDS,
        pool=None,
    )
    return httpx2.AsyncClient(
        headers=headers, timeout=timeout, transport=_transport(tokens), follow_redirects=False
    )


def _transport(tokens: AccessTokens | None) -> httpx2.AsyncBaseTransport:
    return _BoundedTransport() if tokens is None else _AuthorizedTransport(tokens)


class _BoundedTransport(httpx2.AsyncBaseTransport):
    def __init__(self) -> None:
        self._inner = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await _checked(await self._send(request))

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._inner.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol) as error:
            return _failed(NOT_SENT, f"can't be reached: {_text_of(error)}")
        except httpx2.TransportError as error:
            return _failed(BROKEN, f"broke off: {_text_of(error)}")
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _AuthorizedTransport(_BoundedTransport):
    """Sends each request with an access token, and once more with another one if that is not accepted."""

    def __init__(self, tokens: AccessTokens) -> None:
        super().__init__()
        self._tokens = tokens

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            for _ in range(2):
                token = await self._tokens.token()
                request.headers["authorization"] = f"Bearer {token}"
                response = await self._send(request)
                if response.status_code != _UNAUTHORIZED:
                    return await _checked(response)
                await response.aclose()
                self._tokens.reject(token)
        except AuthorizationNeeded as error:
            return _failed(NOT_AUTHORIZED, str(error))
        except ServerAway as error:
            return _failed(NOT_SENT, str(error))
        return _failed(NOT_SENT, _REFUSED_STATUSES[_UNAUTHORIZED])


async def _checked(response: httpx2.Response) -> httpx2.Response:
    kind = response.headers.get("content-type", "").lower()
    status = response.status_code
    if response.headers.get("content-encoding", "identity") != "identity":
        await response.aclose()
        return _failed(BROKEN, "its answer is compressed, which was not asked for")
    if status >= 400 and not kind.startswith("application/json"):
        if (why := _REFUSED_STATUSES.get(status)) is not None:
            await response.aclose()
            return _failed(NOT_SENT, why)
        if status in _GATEWAY_STATUSES:
            await response.aclose()
            return _failed(BROKEN, f"it answered with status {status}")
    if not kind.startswith("text/event-stream"):
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _BoundedStream(response.stream)
    return response


def _failed(code: int, message: str) -> httpx2.Response:
    """An answer of our own, which the library hands to the caller of this request alone."""
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return httpx2.Response(
        500, headers={"content-type": "application/json"}, content=json.dumps(error).encode()
    )


def _text_of(error: Exception) -> str:
    return str(error) or type(error).__name__


class _BoundedStream(httpx2.AsyncByteStream):
    """A body of limited size. A larger one ends as an empty body, which the library refuses."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks: list[bytes] = []
        size = 0
        try:
            async for chunk in self._inner:
                size += len(chunk)
                if size > MAX_BODY_BYTES:
                    return
                chunks.append(chunk)
        except httpx2.TransportError:
            return
        for chunk in chunks:
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
