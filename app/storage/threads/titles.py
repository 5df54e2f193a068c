"""The search for words of titles: by their index for rare words, and in the order of the list for frequent ones.

The index finds all threads with the words, and sorting a million of them takes long. A page of a frequent word is complete
after few threads of the list.
"""

import re

from msgspec import Struct
from sqlalchemy import ARRAY, ColumnElement, any_, func, literal, select, text

from app.domain.ids import Tenant
from app.storage.postgres.database import Connection
from app.storage.tables import threads

MAX_MATCHES = 5_000
"""Up to this number, the threads with the words are read by the index of titles, and sorted."""
_WORD = re.compile(r"\w+")
_SIMPLE = text("'simple'::regconfig")


class TitleSearch(Struct, frozen=True):
    """A condition for threads. If the words are frequent, no index is used for it."""

    condition: ColumnElement[bool]
    is_frequent: bool


async def search(connection: Connection, tenant: Tenant, title: str) -> TitleSearch:
    """Find out how many threads have a title with words that begin with each of these."""
    words = _WORD.findall(title)
    if not words:
        return TitleSearch(literal(False), is_frequent=False)
    query = func.to_tsquery(_SIMPLE, " & ".join(f"'{word}':*" for word in words))
    indexed = func.to_tsvector(_SIMPLE, threads.c.title).op("@@", is_comparison=True)(query)
    matches = (
        # Lets Postgres use the partial index `threads_titles`.
        select(threads.c.id)
        .where(threads.c.tenant == tenant, indexed, text("threads.title IS NOT NULL"))
        .limit(MAX_MATCHES + 1)
    )
    found = await connection.scalars(matches)
    if len(found) <= MAX_MATCHES:
        ids = literal(found, ARRAY(threads.c.id.type))
        return TitleSearch(threads.c.id == any_(ids), is_frequent=False)
    # An expression that isn't the index's, so that Postgres doesn't read all matches before it sorts.
    unindexed = func.to_tsvector(_SIMPLE, threads.c.title + "").op("@@", is_comparison=True)(query)
    return TitleSearch(unindexed, is_frequent=True)
