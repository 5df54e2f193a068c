"""Access tokens for MCP servers, sealed, and the reservations of their renewal."""

from msgspec import Struct

from app.domain.ids import Tenant
from app.storage.postgres.database import RawPool
from app.storage.postgres.named_parameters import NamedSql

_LOAD = NamedSql("""
SELECT sealed FROM mcp_tokens WHERE tenant = :tenant AND server = :server AND subject = :subject AND issuer = :issuer
""")
_CLAIM = NamedSql("""
INSERT INTO mcp_tokens AS t (tenant, server, subject, issuer, renewed_until)
VALUES (:tenant, :server, :subject, :issuer, now() + make_interval(secs => :seconds))
ON CONFLICT (tenant, server, subject, issuer) DO UPDATE SET renewed_until = EXCLUDED.renewed_until
WHERE t.renewed_until IS NULL OR t.renewed_until < now()
RETURNING true
""")
_SAVE = NamedSql("""
INSERT INTO mcp_tokens (tenant, server, subject, issuer, sealed) VALUES (:tenant, :server, :subject, :issuer, :sealed)
ON CONFLICT (tenant, server, subject, issuer) DO UPDATE
SET sealed = EXCLUDED.sealed, renewed_until = NULL, updated_at = now()
""")
_RELEASE = NamedSql("""
UPDATE mcp_tokens SET renewed_until = NULL WHERE tenant = :tenant AND server = :server AND subject = :subject AND issuer = :issuer
""")
_DELETE = NamedSql("""
DELETE FROM mcp_tokens WHERE tenant = :tenant AND server = :server AND subject = :subject AND issuer = :issuer
""")
_DELETE_OF_SUBJECT = NamedSql("""
DELETE FROM mcp_tokens WHERE tenant = :tenant AND server = :server AND subject = :subject
""")


class TokenRow(Struct, frozen=True):
    """The key of a row. The subject is empty for the tokens of Holdfast itself."""

    tenant: str
    server: str
    subject: str
    issuer: str

    @property
    def key(self) -> dict[str, str]:
        """The values of the key's columns."""
        return {
            "tenant": self.tenant,
            "server": self.server,
            "subject": self.subject,
            "issuer": self.issuer,
        }


async def load(pool: RawPool, row: TokenRow) -> str | None:
    """The sealed tokens; None if there are none."""
    sealed: str | None = await pool.fetchval(*_LOAD(**row.key))
    return sealed


async def claim(pool: RawPool, row: TokenRow, seconds: float) -> bool:
    """Reserve the renewal for some seconds. False while another process has it."""
    return await pool.fetchval(*_CLAIM(**row.key, seconds=seconds)) is True


async def save(pool: RawPool, row: TokenRow, sealed: str) -> None:
    """Store tokens, and end the reservation."""
    await pool.execute(*_SAVE(**row.key, sealed=sealed))


async def release(pool: RawPool, row: TokenRow) -> None:
    await pool.execute(*_RELEASE(**row.key))


async def delete(pool: RawPool, row: TokenRow) -> None:
    await pool.execute(*_DELETE(**row.key))


async def delete_of_subject(pool: RawPool, tenant: Tenant, server: str, subject: str) -> None:
    """Delete a subject's tokens for a server, those of earlier issuers too."""
    await pool.execute(*_DELETE_OF_SUBJECT(tenant=tenant, server=server, subject=subject))
