"""A person gives access: the address of the authorization server for it, and what comes back from there.

Nothing is stored meanwhile. The `state` is sealed, and has all that is needed to finish, with the verifier of PKCE.
A browser that begins also gets a cookie, so only that browser can finish.
"""

import base64
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any
from urllib.parse import urlencode

from app.domain.ids import Tenant
from app.tools.mcp.oauth.authorization_server import AuthorizationServer, AuthorizationServerFailed
from app.tools.mcp.oauth.token_store import Holder, Seal, Tokens

ATTEMPT_SECONDS = 600.0
_BYTES = 32


class AuthorizationFailed(Exception):
    """Access was not given; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What the `state` of an authorization says."""

    server: str
    tenant: str
    subject: str
    verifier: str = field(repr=False)
    redirect_uri: str
    browser: str | None
    """The value of the cookie that only the same browser sends; None if a program began it."""

    @property
    def holder(self) -> Holder:
        return Holder(Tenant(self.tenant), self.subject)


def new_attempt(server: str, holder: Holder, redirect_uri: str, *, in_browser: bool) -> Attempt:
    return Attempt(
        server=server,
        tenant=holder.tenant,
        subject=holder.subject,
        verifier=secrets.token_urlsafe(_BYTES),
        redirect_uri=redirect_uri,
        browser=secrets.token_urlsafe(_BYTES) if in_browser else None,
    )


async def address_for(
    attempt: Attempt, seal: Seal, server: AuthorizationServer, resource: str
) -> str:
    """The address where a person gives access. Raises AuthorizationServerFailed."""
    endpoints = await server.endpoints()
    if endpoints.authorization is None or not endpoints.has_pkce:
        raise AuthorizationServerFailed(
            f"{server.oauth.issuer} doesn't offer authorization codes with PKCE (S256)"
        )
    challenge = hashlib.sha256(attempt.verifier.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": server.oauth.client_id,
        "redirect_uri": attempt.redirect_uri,
        "state": seal.close(asdict(attempt)),
        "code_challenge": base64.urlsafe_b64encode(challenge).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
        "resource": resource,
    }
    if server.oauth.scopes:
        query["scope"] = " ".join(server.oauth.scopes)
    separator = "&" if "?" in endpoints.authorization else "?"
    return f"{endpoints.authorization}{separator}{urlencode(query)}"


def attempt_of(seal: Seal, state: str, server: str, browser: str | None) -> Attempt:
    """The attempt that a `state` belongs to. Raises AuthorizationFailed."""
    content = seal.open(state, max_age=ATTEMPT_SECONDS)
    attempt = None if content is None else _attempt(content)
    if attempt is None or attempt.server != server:
        raise AuthorizationFailed("it has expired, or was not begun here")
    if attempt.browser is not None and not secrets.compare_digest(attempt.browser, browser or ""):
        raise AuthorizationFailed("it was begun in another browser")
    return attempt


def _attempt(content: Mapping[str, Any]) -> Attempt | None:
    names = {each.name for each in fields(Attempt)}
    return Attempt(**content) if set(content) == names else None


async def redeemed(
    attempt: Attempt, code: str, issuer: str | None, server: AuthorizationServer, resource: str
) -> Tokens:
    """The tokens for a code. Raises AuthorizationFailed or AuthorizationServerFailed."""
    endpoints = await server.endpoints()
    expected = server.oauth.issuer
    is_named = issuer is not None and issuer.rstrip("/") == expected.rstrip("/")
    if not is_named and (issuer is not None or endpoints.gives_issuer):
        # An answer of another authorization server: its code must not be sent to this one.
        raise AuthorizationFailed("the answer doesn't come from the expected issuer")
    return await server.tokens(
        {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": attempt.redirect_uri,
            "code_verifier": attempt.verifier,
            "resource": resource,
        }
    )
