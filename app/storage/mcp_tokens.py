"""Access tokens for MCP servers, sealed, and the reservations of their renewal."""

from dataclasses import dataclass

from app.domain.ids import Tenant
from app.storage.postgres.database import RawPool

_LOAD = """
SELECT sealed FROM mcp_tokens WHERE tenant = $1 AND server = $2 AND subject = $3 AND issuer = $4
"""
_CLAIM = """
INSERT INTO mcp_tokens AS t (tenant, server, subject, issuer, renewed_until)
VALUES ($1, $2, $3, $4, now() + make_interval(secs => $5))
ON CONFLICT (tenant, server, subject, issuer) DO UPDATE SET renewed_until = EXCLUDED.renewed_until
WHERE t.renewed_until IS NULL OR t.renewed_until < now()
RETURNING true
"""
_SAVE = """
INSERT INTO mcp_tokens (tenant, server, subject, issuer, sealed) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant, server, subject, issuer) DO UPDATE
SET sealed = EXCLUDED.sealed, renewed_until = NULL, updated_at = now()
"""
_RELEASE = """
UPDATE mcp_tokens SET renewed_until = NULL WHERE tenant = $1 AND server = $2 AND subject = $3 AND issuer = $4
"""
_DELETE = """
DELETE FROM mcp_tokens WHERE tenant = $1 AND server = $2 AND subject = $3 AND issuer = $4
"""
_DELETE_OF_SUBJECT = """
DELETE FROM mcp_tokens WHERE tenant = $1 AND server = $2 AND subject = $3
"""


@dataclass(frozen=True, slots=True)
class TokenRow:
    """The key of a row. The subject is empty for the tokens of Holdfast itself."""

    tenant: str
    server: str
    subject: str
    issuer: str

    @property
    def columns(self) -> tuple[str, str, str, str]:
        return self.tenant, self.server, self.subject, self.issuer


async def load(pool: RawPool, row: TokenRow) -> str | None:
    """The sealed tokens; None if there are none."""
    sealed: str | None = await pool.fetchval(_LOAD, *row.columns)
    return sealed


async def claim(pool: RawPool, row: TokenRow, seconds: float) -> bool:
    """Reserve the renewal for some seconds. False while another process has it."""
    return await pool.fetchval(_CLAIM, *row.columns, seconds) is True


async def save(pool: RawPool, row: TokenRow, sealed: str) -> None:
    """Store tokens, and end the reservation."""
    await pool.execute(_SAVE, *row.columns, sealed)


async def release(pool: RawPool, row: TokenRow) -> None:
    await pool.execute(_RELEASE, *row.columns)


async def delete(pool: RawPool, row: TokenRow) -> None:
    await pool.execute(_DELETE, *row.columns)


async def delete_of_subject(pool: RawPool, tenant: Tenant, server: str, subject: str) -> None:
    """Delete a subject's tokens for a server, those of earlier issuers too."""
    await pool.execute(_DELETE_OF_SUBJECT, tenant, server, subject)
