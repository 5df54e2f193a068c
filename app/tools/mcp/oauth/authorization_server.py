"""Requests to an authorization server: its metadata and its token endpoint.

Its address is the `issuer` of the agents file. The MCP server can't name another one, so it can't get the client's
secret. Answers have bounds in size and time, and redirects are not followed.
"""

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
from msgspec import Struct

from app.clock import Clock
from app.domain.errors import HoldfastError
from app.domain.json_values import JsonObject, as_object
from app.tools.mcp.oauth.token_store import Tokens
from app.tools.mcp.server_spec import OAuthSpec
from app.tools.result_limits import shortened

REQUEST_SECONDS = 10.0
MAX_ANSWER_BYTES = 64_000
METADATA_SECONDS = 3600.0
_MAX_ERROR_CHARACTERS = 300
_MAX_LIFETIME_SECONDS = 10 * 365 * 86_400
_METHOD_POST, _METHOD_BASIC = "client_secret_post", "client_secret_basic"


class AuthorizationServerFailed(HoldfastError):
    """It can't be reached, or its answer can't be used."""


class TokenRefused(AuthorizationServerFailed):
    """It answered a request for a token with an error of OAuth, such as `invalid_grant`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Endpoints(Struct, frozen=True, kw_only=True):
    """What its metadata says."""

    token: str
    authorization: str | None
    auth_methods: tuple[str, ...]
    has_pkce: bool
    gives_issuer: bool
    """Whether each answer to an authorization names the issuer."""


class AuthorizationServer:
    """The authorization server of one MCP server."""

    def __init__(self, oauth: OAuthSpec, secret: str | None, clock: Clock) -> None:
        self.oauth = oauth
        self._secret = secret
        self._clock = clock
        self._endpoints: Endpoints | None = None
        self._read_at = 0.0

    async def endpoints(self) -> Endpoints:
        """Its endpoints, read at most once in an hour."""
        now = asyncio.get_running_loop().time()
        if self._endpoints is None or now - self._read_at > METADATA_SECONDS:
            self._endpoints, self._read_at = await self._metadata(), now
        return self._endpoints

    async def tokens(self, form: Mapping[str, str]) -> Tokens:
        """Ask the token endpoint. Raises AuthorizationServerFailed."""
        endpoints = await self.endpoints()
        body, headers = self._authenticated(form, endpoints)
        status, answer = await _ask("POST", endpoints.token, data=body, headers=headers)
        if status >= 400 or "access_token" not in answer:
            code = str(answer.get("error") or f"status {status}")
            said = str(answer.get("error_description") or "")
            raise TokenRefused(
                code, shortened(f"{self.oauth.issuer} refused a token: {code} {said}".strip(), 300)
            )
        return self._tokens_of(answer)

    def _authenticated(
        self, form: Mapping[str, str], endpoints: Endpoints
    ) -> tuple[dict[str, str], dict[str, str]]:
        """The form and the headers of a request of this client."""
        client_id, secret = self.oauth.client_id, self._secret
        if secret is None:
            return {**form, "client_id": client_id}, {}
        methods = endpoints.auth_methods
        if _METHOD_POST in methods and _METHOD_BASIC not in methods:
            return {**form, "client_id": client_id, "client_secret": secret}, {}
        pair = httpx2.BasicAuth(quote(client_id, safe=""), quote(secret, safe=""))
        request = next(pair.auth_flow(httpx2.Request("POST", endpoints.token)))
        return dict(form), {"authorization": request.headers["authorization"]}

    def _tokens_of(self, answer: Mapping[str, Any]) -> Tokens:
        token, refresh = answer["access_token"], answer.get("refresh_token")
        kind = str(answer.get("token_type") or "bearer").lower()
        if not isinstance(token, str) or not token or not token.isprintable() or kind != "bearer":
            raise AuthorizationServerFailed(f"{self.oauth.issuer} gave no bearer token")
        try:
            lifetime = min(float(answer.get("expires_in") or 0), _MAX_LIFETIME_SECONDS)
        except (TypeError, ValueError):
            lifetime = 0.0
        return Tokens(
            access_token=token,
            expires_at=self._clock.now() + timedelta(seconds=lifetime) if lifetime > 0 else None,
            lifetime=max(lifetime, 0.0),
            refresh_token=refresh if isinstance(refresh, str) and refresh else None,
        )

    async def _metadata(self) -> Endpoints:
        issuer = self.oauth.issuer
        problem = "it has no metadata"
        for url in metadata_urls(issuer):
            status, found = await _ask("GET", url)
            if status >= 400 or "issuer" not in found:
                continue
            if str(found["issuer"]).rstrip("/") != issuer.rstrip("/"):
                problem = (
                    f"its metadata names another issuer, {shortened(str(found['issuer']), 200)}"
                )
                continue
            return _endpoints_of(issuer, found)
        raise AuthorizationServerFailed(
            f"the authorization server {issuer} can't be used: {problem}"
        )


def metadata_urls(issuer: str) -> list[str]:
    """Where an issuer's metadata may be, by RFC 8414 and by OpenID Connect."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    urls = [
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}/.well-known/openid-configuration{path}",
        f"{origin}{path}/.well-known/openid-configuration",
    ]
    return list(dict.fromkeys(urls))


def _endpoints_of(issuer: str, found: Mapping[str, Any]) -> Endpoints:
    token, authorization = found.get("token_endpoint"), found.get("authorization_endpoint")
    for url in (token, authorization):
        if url is not None and not _is_address(url, issuer):
            raise AuthorizationServerFailed(
                f"the metadata of {issuer} has an endpoint without https"
            )
    if token is None:
        raise AuthorizationServerFailed(f"the metadata of {issuer} has no token_endpoint")
    return Endpoints(
        token=token,
        authorization=authorization,
        auth_methods=_texts(found.get("token_endpoint_auth_methods_supported")),
        has_pkce="S256" in _texts(found.get("code_challenge_methods_supported")),
        gives_issuer=found.get("authorization_response_iss_parameter_supported") is True,
    )


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _is_address(url: Any, issuer: str) -> bool:
    """Whether it is an address of the issuer's own scheme, or https."""
    if not isinstance(url, str) or not url.isprintable():
        return False
    parts = urlsplit(url)
    return bool(parts.netloc) and parts.scheme in ("https", urlsplit(issuer).scheme)


async def _ask(method: str, url: str, **request: Any) -> tuple[int, JsonObject]:
    """The status and the JSON object of an answer. Raises AuthorizationServerFailed."""
    try:
        async with (
            asyncio.timeout(REQUEST_SECONDS),
            httpx2.AsyncClient(timeout=REQUEST_SECONDS, follow_redirects=False) as client,
            client.stream(method, url, **request) as response,
        ):
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    raise AuthorizationServerFailed(f"the answer of {url} is too large")
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
        why = shortened(str(error) or type(error).__name__, _MAX_ERROR_CHARACTERS)
        raise AuthorizationServerFailed(f"{url} can't be reached: {why}") from error
    if response.status_code >= 500:
        raise AuthorizationServerFailed(f"{url} answered with status {response.status_code}")
    try:
        return response.status_code, as_object(json.loads(bytes(body))) or {}
    except (ValueError, RecursionError):
        return response.status_code, {}
