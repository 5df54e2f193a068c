"""Secrets that all processes on this database share. The first process that needs one creates it."""

import secrets

from app.storage.postgres.database import RawPool

_BYTES = 32

_INSERT = """
INSERT INTO server_secrets (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING
"""
_SELECT = "SELECT value FROM server_secrets WHERE name = $1"


async def stream_token_secret(pool: RawPool) -> bytes:
    """The secret that signs stream tokens, the same for all processes."""
    return await _shared(pool, "stream_token")


async def mcp_token_secret(pool: RawPool) -> bytes:
    """The secret that seals the access tokens for MCP servers, the same for all processes."""
    return await _shared(pool, "mcp_tokens")


async def _shared(pool: RawPool, name: str) -> bytes:
    """Create a secret or read it. The insert waits for a concurrent one, whose value is then read."""
    found: bytes | None = await pool.fetchval(_SELECT, name)
    if found is None:
        await pool.execute(_INSERT, name, secrets.token_bytes(_BYTES))
        found = await pool.fetchval(_SELECT, name)
    if found is None:
        raise RuntimeError(f"the secret {name!r} was removed while it was made")
    return bytes(found)
