"""Each SQL query of the documents is valid for the current schema."""

import re
from uuid import uuid4

import pytest

from app.storage.postgres.database import Database
from tests.support.documents import pages

pytestmark = pytest.mark.anyio

STATEMENTS = [
    statement
    for file in pages()
    for statement in re.findall(r"^```sql\n(.*?)^```", file.read_text(), re.M | re.S)
]


async def test_every_query_of_the_documents_can_be_executed(database: Database) -> None:
    assert STATEMENTS
    for statement in STATEMENTS:
        # psql's variables.
        filled = statement.replace(":'tenant'", "'default'").replace(":'thread'", f"'{uuid4()}'")
        assert await database.pool.fetch(filled) == []
