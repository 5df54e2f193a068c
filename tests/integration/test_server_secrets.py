"""Secrets of the installation: created once, although several processes request them concurrently."""

import asyncio

import pytest

from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import Database
from app.storage.server_secrets import stream_token_secret

pytestmark = pytest.mark.anyio


async def test_concurrent_processes_get_the_same_secret(database_url: str) -> None:
    replicas = [await Database.open(database_url, DatabaseOptions()) for _ in range(3)]
    try:
        found = await asyncio.gather(
            *(stream_token_secret(replica.pool) for replica in replicas for _ in range(4))
        )
        later = await stream_token_secret(replicas[0].pool)
    finally:
        for replica in replicas:
            await replica.close()
    assert set(found) == {later}
    assert len(later) == 32
