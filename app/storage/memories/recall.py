"""Recall: the memories of an owner that fit a text best."""

from collections.abc import Sequence

from sqlalchemy import func

from app.domain.ids import Tenant
from app.domain.memories.memories import MemoryEntry, MemoryOwner
from app.storage.memories.memories import entry_of, of_owner, shown
from app.storage.memories.search import any_word_of, words_found
from app.storage.postgres.database import Connection
from app.storage.tables import memories


async def most_relevant(
    connection: Connection,
    tenant: Tenant,
    owner: MemoryOwner,
    query: str,
    limit: int,
    language: str,
) -> Sequence[MemoryEntry]:
    """The owner's memories with a word of the query, those with the most words first."""
    wanted = any_word_of(query, language)
    statement = (
        shown(of_owner(tenant, owner), memories.c.words.op("@@")(wanted))
        .order_by(
            words_found(query, language).desc(),
            func.ts_rank(memories.c.words, wanted).desc(),
            memories.c.updated_at.desc(),
            memories.c.id.desc(),
        )
        .limit(limit)
    )
    return [entry_of(row) for row in await connection.execute(statement)]
