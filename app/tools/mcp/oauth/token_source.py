"""The access token of one holder: renewed before it expires, by one process at a time.

A renewal is reserved in the database for some seconds. Other processes use the old token as long as it is valid, and
wait for the new one after that. So a refresh token that may be used once is used once.
"""

import asyncio
from dataclasses import dataclass, field

from app.clock import Clock, sleep
from app.tools.mcp.client import AuthorizationNeeded, ServerAway
from app.tools.mcp.oauth.authorization_server import (
    AuthorizationServer,
    AuthorizationServerFailed,
    TokenRefused,
)
from app.tools.mcp.oauth.token_store import TokenKey, Tokens, TokenStore
from app.tools.mcp.server_spec import Grant

RENEW_SECONDS = 60.0
"""A token is renewed so long before it expires, but not before four fifths of its lifetime."""
CLAIM_SECONDS = 30.0
READ_SECONDS = 10.0
"""The stored token is read again after this time, because access may have been withdrawn."""
_POLL_SECONDS = 0.1
_GRANT_IS_GONE = frozenset({"invalid_grant", "invalid_token", "unauthorized_client"})


@dataclass(slots=True)
class TokenSource:
    """Gives the token for requests to the MCP server."""

    key: TokenKey
    resource: str
    """The address of the MCP server, for which the token is meant."""
    server: AuthorizationServer
    store: TokenStore
    clock: Clock
    _newest: Tokens | None = None
    _read_at: float = 0.0
    _rejected: str | None = None
    """The last access token that the MCP server did not accept."""
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def token(self) -> str:
        """A valid access token. Raises AuthorizationNeeded, or ServerAway if none can be had now."""
        newest = self._usable
        if newest is None:
            async with self._lock:
                newest = self._usable
                if newest is None:
                    self._newest = None
                    newest = self._newest = await self._current()
                    self._read_at = asyncio.get_running_loop().time()
        return newest.access_token

    @property
    def _usable(self) -> Tokens | None:
        """The token that this process knows, if it was read lately."""
        age = asyncio.get_running_loop().time() - self._read_at
        is_usable = self._newest is not None and age < READ_SECONDS and self._is_fresh(self._newest)
        return self._newest if is_usable else None

    def reject(self, access_token: str) -> None:
        """The MCP server did not accept this token, so another one is needed."""
        self._rejected = access_token

    def forget(self) -> None:
        """Read the stored token again before the next use."""
        self._newest = None

    async def _current(self) -> Tokens:
        end = asyncio.get_running_loop().time() + 2 * CLAIM_SECONDS
        while True:
            stored = await self.store.load(self.key)
            if stored is not None and self._is_fresh(stored):
                return stored
            if not self._can_renew(stored):
                if stored is not None and self._is_valid(stored):
                    return stored
                raise AuthorizationNeeded("a person has to give access")
            if await self.store.claim(self.key, CLAIM_SECONDS):
                return await self._renewed()
            if stored is not None and self._is_valid(stored):
                return stored
            if asyncio.get_running_loop().time() > end:
                raise ServerAway("another process renews its token, and did not finish")
            await sleep(_POLL_SECONDS)

    async def _renewed(self) -> Tokens:
        """A new token, with the renewal reserved. A process that had it before may have finished just now."""
        stored = None
        try:
            stored = await self.store.load(self.key)
            if stored is not None and self._is_fresh(stored):
                await self.store.release(self.key)
                return stored
            tokens = await self.server.tokens(self._form(stored))
        except AuthorizationServerFailed as error:
            await self.store.release(self.key)
            return await self._without_renewal(stored, error)
        except BaseException:
            await asyncio.shield(self.store.release(self.key))
            raise
        if tokens.refresh_token is None and stored is not None:
            # An answer without a refresh token leaves the old one valid.
            tokens = Tokens(
                access_token=tokens.access_token,
                expires_at=tokens.expires_at,
                lifetime=tokens.lifetime,
                refresh_token=stored.refresh_token,
            )
        await self.store.save(self.key, tokens)
        return tokens

    async def _without_renewal(
        self, stored: Tokens | None, error: AuthorizationServerFailed
    ) -> Tokens:
        is_of_person = self.server.oauth.grant is Grant.AUTHORIZATION_CODE
        if is_of_person and isinstance(error, TokenRefused) and error.code in _GRANT_IS_GONE:
            await self.store.delete(self.key)
            raise AuthorizationNeeded("the access has ended, and a person has to give it again")
        if stored is not None and self._is_valid(stored):
            return stored
        raise ServerAway(str(error)) from error

    def _can_renew(self, stored: Tokens | None) -> bool:
        if self.server.oauth.grant is Grant.CLIENT_CREDENTIALS:
            return True
        return stored is not None and stored.refresh_token is not None

    def _form(self, stored: Tokens | None) -> dict[str, str]:
        oauth = self.server.oauth
        form = {"resource": self.resource}
        if oauth.scopes:
            form["scope"] = " ".join(oauth.scopes)
        if oauth.grant is Grant.CLIENT_CREDENTIALS:
            return {"grant_type": "client_credentials", **form}
        assert stored is not None
        assert stored.refresh_token is not None
        return {"grant_type": "refresh_token", "refresh_token": stored.refresh_token, **form}

    def _is_valid(self, tokens: Tokens) -> bool:
        if tokens.access_token == self._rejected:
            return False
        return tokens.expires_at is None or tokens.expires_at > self.clock.now()

    def _is_fresh(self, tokens: Tokens) -> bool:
        if not self._is_valid(tokens) or tokens.expires_at is None:
            return self._is_valid(tokens)
        left = (tokens.expires_at - self.clock.now()).total_seconds()
        return left > min(RENEW_SECONDS, tokens.lifetime / 5)
