"""Starts the database that the forked processes share, before the first of them is forked."""

import pytest

from tests.support.databases import Databases


@pytest.mark.anyio
async def test_the_database_starts(postgres: Databases, database_url: str) -> None:
    assert database_url != postgres.dsn
