"""Access tokens for MCP servers in the database, sealed with a secret of this installation."""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from msgspec import Struct

from app.agents.catalog import Catalog
from app.clock import SystemClock
from app.domain.errors import ConfigurationError
from app.domain.json_values import as_object
from app.http.origins.public_url import load_public_url
from app.settings import Settings
from app.storage import mcp_tokens
from app.storage.mcp_tokens import TokenRow
from app.storage.postgres.database import Database
from app.storage.server_secrets import mcp_token_secret
from app.tools.mcp.oauth.server_authorization import TokenServices
from app.tools.mcp.oauth.token_store import Seal, TokenKey, Tokens


class FernetSeal:
    """Seals with AES and an HMAC. The library comes with the extra `mcp`."""

    def __init__(self, secret: bytes) -> None:
        self._fernet, self._invalid = _library(secret)

    def close(self, content: Mapping[str, object]) -> str:
        sealed: bytes = self._fernet.encrypt(json.dumps(dict(content)).encode())
        return sealed.decode()

    def open(self, sealed: str, *, max_age: float | None = None) -> dict[str, object] | None:
        try:
            text = self._fernet.decrypt(sealed, None if max_age is None else int(max_age))
        except (self._invalid, ValueError):
            return None
        return as_object(json.loads(text))


def _library(secret: bytes) -> tuple[Any, type[Exception]]:
    try:
        module = import_module("cryptography.fernet")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "the agents file has [mcp.….oauth], and the library for it isn't installed. Install it with"
            " `pip install 'holdfast-server[mcp]'`, or remove the table."
        ) from error
    invalid: type[Exception] = module.InvalidToken
    return module.Fernet(base64.urlsafe_b64encode(secret)), invalid


async def token_services(
    database: Database, catalog: Catalog, settings: Settings, environ: Mapping[str, str]
) -> TokenServices | None:
    """What servers with OAuth share; None if there is no such server."""
    if not any(spec.oauth for spec in catalog.mcp.values()):
        return None
    seal = FernetSeal(await mcp_token_secret(database.pool))
    public_url = load_public_url(settings.public_url)
    return TokenServices(
        store=SealedTokens(database, seal),
        seal=seal,
        clock=SystemClock(),
        environ=environ,
        public_url="" if public_url is None else str(public_url),
    )


class SealedTokens(Struct, frozen=True):
    """The store of tokens. A row that can't be opened counts as none, as after a change of the secret."""

    database: Database
    seal: Seal

    async def load(self, key: TokenKey) -> Tokens | None:
        sealed = await mcp_tokens.load(self.database.pool, _row(key))
        body = None if sealed is None else self.seal.open(sealed)
        # The key is in the sealed text, so that a row can't be copied to another subject.
        return None if body is None or body.pop("key") != _row(key).key else _tokens(body)

    async def claim(self, key: TokenKey, seconds: float) -> bool:
        return await mcp_tokens.claim(self.database.pool, _row(key), seconds)

    async def save(self, key: TokenKey, tokens: Tokens) -> None:
        row = _row(key)
        expires_at = None if tokens.expires_at is None else tokens.expires_at.timestamp()
        body = {
            "key": row.key,
            "access_token": tokens.access_token,
            "expires_at": expires_at,
            "lifetime": tokens.lifetime,
            "refresh_token": tokens.refresh_token,
        }
        await mcp_tokens.save(self.database.pool, row, self.seal.close(body))

    async def release(self, key: TokenKey) -> None:
        await mcp_tokens.release(self.database.pool, _row(key))

    async def delete(self, key: TokenKey) -> None:
        await mcp_tokens.delete(self.database.pool, _row(key))


def _row(key: TokenKey) -> TokenRow:
    return TokenRow(key.holder.tenant, key.server, key.holder.subject, key.issuer)


def _tokens(body: Mapping[str, Any]) -> Tokens:
    expires_at = body["expires_at"]
    return Tokens(
        access_token=body["access_token"],
        expires_at=None if expires_at is None else datetime.fromtimestamp(expires_at, UTC),
        lifetime=body["lifetime"],
        refresh_token=body["refresh_token"],
    )
