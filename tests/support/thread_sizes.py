"""What a thread takes in the database, by the statement of the documents."""

from pathlib import Path
from typing import Any

import asyncpg

from app.domain.principals import DEFAULT_TENANT

_PAGE = (Path(__file__).parents[2] / "docs/explanation/what-is-kept.md").read_text()
_STATEMENT = _PAGE.partition("```sql\nSELECT part,")[2].partition("```")[0]


async def thread_size(url: str, thread_id: str) -> dict[str, dict[str, Any]]:
    """By part of the thread: rows, bytes, and how many rows merging has saved."""
    statement = f"SELECT part,{_STATEMENT}".replace(":'tenant'", "$1").replace(":'thread'", "$2")
    connection = await asyncpg.connect(url)
    try:
        found = await connection.fetch(statement, DEFAULT_TENANT, thread_id)
    finally:
        await connection.close()
    return {row["part"]: dict(row) for row in found}


async def merged_rows(url: str, thread_id: str) -> int:
    """How many events of the thread have become part of another one."""
    return int((await thread_size(url, thread_id))["events"]["merged_rows"])
