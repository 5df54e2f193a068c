"""Secrets that all processes on this database share, made when the first of them asks."""

import secrets

from app.storage.postgres.database import RawPool

_BYTES = 32

_INSERT = """
INSERT INTO server_secrets (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING
"""
_SELECT = "SELECT value FROM server_secrets WHERE name = $1"


async def stream_token_secret(pool: RawPool) -> bytes:
    """The secret that signs stream tokens: of processes that ask at once, all get the same."""
    return await _shared(pool, "stream_token")


async def _shared(pool: RawPool, name: str) -> bytes:
    """The insert waits for that of another process; the statement behind it reads what was committed."""
    found: bytes | None = await pool.fetchval(_SELECT, name)
    if found is None:
        await pool.execute(_INSERT, name, secrets.token_bytes(_BYTES))
        found = await pool.fetchval(_SELECT, name)
    if found is None:
        raise RuntimeError(f"the secret {name!r} was removed while it was made")
    return bytes(found)
