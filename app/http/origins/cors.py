"""Cross-origin requests of web pages (CORS): answers to preflights, and headers on all other responses.

It wraps the whole application, so that errors and streams have the headers, too. A page of an origin that
isn't allowed gets none of them, so its browser doesn't show it the response.
"""

import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http.origins.web_access import WebAccess

EXPOSED_HEADERS = (
    "Allow",
    "Content-Location",
    "Deprecation",
    "ETag",
    "Idempotency-Replayed",
    "Link",
    "Location",
    "Preference-Applied",
    "Retry-After",
    "Sunset",
    "WWW-Authenticate",
    "X-Request-Id",
)
"""Response headers that a page couldn't read otherwise."""

PREFLIGHT_MAX_AGE_SECONDS = 600

_METHODS = b"DELETE, GET, HEAD, PATCH, POST, PUT"
_HEADER_NAMES = re.compile(r"[\w!#$%&'*+.^`|~-]+(?:[ \t]*,[ \t]*[\w!#$%&'*+.^`|~-]+)*", re.ASCII)
_MAX_HEADER_NAMES_LENGTH = 2_000


class CrossOrigin:
    """Answers preflights of allowed origins, and adds CORS headers to the responses that they get."""

    def __init__(self, app: ASGIApp, access: WebAccess) -> None:
        self._app = app
        self._access = access
        # With exact origins a response depends on the origin, which caches must know.
        self._vary = [] if access.allows_any_origin else [(b"vary", b"Origin")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origins = headers.getlist("origin")
        is_allowed = len(origins) == 1 and self._access.allows(origins[0])
        added = [*self._vary, *self._allowing(origins[0])] if is_allowed else self._vary
        if is_allowed and _is_preflight(scope, headers):
            added += _preflight_headers(headers)
            await send({"type": "http.response.start", "status": 204, "headers": added})
            await send({"type": "http.response.body", "body": b""})
            return
        if is_allowed:
            added.append((b"access-control-expose-headers", ", ".join(EXPOSED_HEADERS).encode()))

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _allowing(self, origin: str) -> list[tuple[bytes, bytes]]:
        """Credentials, such as cookies of a proxy, are allowed to exact origins only."""
        if self._access.allows_any_origin:
            return [(b"access-control-allow-origin", b"*")]
        return [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-allow-credentials", b"true"),
        ]


def _is_preflight(scope: Scope, headers: Headers) -> bool:
    return scope["method"] == "OPTIONS" and "access-control-request-method" in headers


def _preflight_headers(headers: Headers) -> list[tuple[bytes, bytes]]:
    found = [
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-max-age", b"%d" % PREFLIGHT_MAX_AGE_SECONDS),
        (b"vary", b"Access-Control-Request-Headers"),
    ]
    # `*` wouldn't cover Authorization, so the requested names are repeated.
    names = headers.get("access-control-request-headers", "")
    if len(names) <= _MAX_HEADER_NAMES_LENGTH and _HEADER_NAMES.fullmatch(names):
        found.append((b"access-control-allow-headers", names.encode()))
    # Chromium asks this before a public page reaches a server in a private network.
    if headers.get("access-control-request-private-network") == "true":
        found.append((b"access-control-allow-private-network", b"true"))
    return found
