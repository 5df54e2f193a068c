"""What is known of tokens: their holder, their form, and where they are stored for all processes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from app.domain.ids import Tenant
from app.domain.principals import ALL_TENANTS


class Holder(Struct, frozen=True):
    """For whom a token was given: a subject of a tenant, or Holdfast itself."""

    tenant: Tenant
    subject: str


HOLDFAST = Holder(ALL_TENANTS, "")


class TokenKey(Struct, frozen=True, kw_only=True):
    """The row of a token. A server that moves to another issuer gets no token of the old one."""

    holder: Holder
    server: str
    issuer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    access_token: str = field(repr=False)
    expires_at: datetime | None = None
    """None if the authorization server doesn't say when."""
    lifetime: float = 0.0
    """Seconds between its issue and its end."""
    refresh_token: str | None = field(default=None, repr=False)


class TokenStore(Protocol):
    """Stores tokens for all processes, sealed."""

    async def load(self, key: TokenKey) -> Tokens | None: ...

    async def claim(self, key: TokenKey, seconds: float) -> bool:
        """Reserve the renewal of a token for this process. False if another one has reserved it."""

    async def save(self, key: TokenKey, tokens: Tokens) -> None:
        """Store a token, and end the reservation."""

    async def release(self, key: TokenKey) -> None:
        """End the reservation without a new token."""

    async def delete(self, key: TokenKey) -> None: ...


class Seal(Protocol):
    """Encrypts with a secret that all processes on the database share."""

    def close(self, content: Mapping[str, object]) -> str: ...

    def open(self, sealed: str, *, max_age: float | None = None) -> dict[str, object] | None:
        """The content; None if it was not sealed here, or is older than `max_age` seconds."""


@dataclass(slots=True)
class TokensInMemory:
    """Tokens of one process, for commands that check a configuration."""

    _tokens: dict[TokenKey, Tokens] = field(default_factory=dict)

    async def load(self, key: TokenKey) -> Tokens | None:
        return self._tokens.get(key)

    async def claim(self, key: TokenKey, seconds: float) -> bool:
        return True

    async def save(self, key: TokenKey, tokens: Tokens) -> None:
        self._tokens[key] = tokens

    async def release(self, key: TokenKey) -> None: ...

    async def delete(self, key: TokenKey) -> None:
        self._tokens.pop(key, None)
