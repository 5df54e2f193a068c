"""The size of a thread in the database, by the statement in the documentation."""

from pathlib import Path
from typing import Any

import asyncpg

from app.domain.principals import DEFAULT_TENANT

_PAGE = (Path(__file__).parents[2] / "docs/explanation/what-is-kept.md").read_text()
_STATEMENT = _PAGE.partition("```sql\nSELECT part,")[2].partition("```")[0]


async def thread_size(url: str, thread_id: str) -> dict[str, dict[str, Any]]:
    """For each part of the thread: rows, bytes, and rows saved by merging."""
    statement = f"SELECT part,{_STATEMENT}".replace(":'tenant'", "$1").replace(":'thread'", "$2")
    connection = await asyncpg.connect(url)
    try:
        found = await connection.fetch(statement, DEFAULT_TENANT, thread_id)
    finally:
        await connection.close()
    return {row["part"]: dict(row) for row in found}


async def merged_rows(url: str, thread_id: str) -> int:
    """The number of events that were merged into another one."""
    return int((await thread_size(url, thread_id))["events"]["merged_rows"])
