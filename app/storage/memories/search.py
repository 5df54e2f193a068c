"""The full-text search of memories, without extensions of Postgres.

A row has its words as they are (`simple`), and by their stems in the configured language. So a row that was saved
under another language is still found by its exact words.
"""

from typing import Any

from sqlalchemy import ColumnElement, Text, cast, func, literal, literal_column, select
from sqlalchemy.dialects.postgresql import REGCONFIG, TSQUERY

from app.domain.json_values import Json
from app.domain.memories.checks import text_of
from app.storage.tables import memories

SIMPLE = "simple"
_AS_SPACE = str.maketrans("_.:-/", "     ")
MAX_QUERY_WORDS = 40
"""More words are ignored."""


def words_of(key: str, value: Json, language: str) -> ColumnElement[Any]:
    """The words of a memory, those of its key first."""
    text = f"{key.translate(_AS_SPACE)} {text_of(value)}"
    plain: ColumnElement[Any] = func.to_tsvector(_config(SIMPLE), literal(text, Text))
    stems: ColumnElement[Any] = func.to_tsvector(_config(language), literal(text, Text))
    return plain.op("||")(stems)


def matches(query: str, language: str) -> ColumnElement[bool]:
    """The condition that a memory has all words of a query, which may have "quotes", `or` and `-`."""
    text = literal(_shortened(query), Text)
    stems: ColumnElement[Any] = func.websearch_to_tsquery(_config(language), text)
    plain: ColumnElement[Any] = func.websearch_to_tsquery(_config(SIMPLE), text)
    return memories.c.words.op("@@")(stems.op("||")(plain))


def any_word_of(query: str, language: str) -> ColumnElement[Any]:
    """The query that a memory fits which has any of the words. Stop words of the language don't count."""
    text = literal(_shortened(query), Text)
    stems: ColumnElement[Any] = func.plainto_tsquery(_config(language), text)
    any_stem = cast(func.replace(cast(stems, Text), "&", "|"), TSQUERY)
    # All words as they are: finds a row whose stems are those of another language.
    plain: ColumnElement[Any] = func.plainto_tsquery(_config(SIMPLE), text)
    return any_stem.op("||")(plain)


def words_found(query: str, language: str) -> ColumnElement[Any]:
    """How many different words of the query a memory has."""
    stems: ColumnElement[Any] = func.to_tsvector(
        _config(language), literal(_shortened(query), Text)
    )
    stem = func.unnest(func.tsvector_to_array(stems)).column_valued("stem")
    is_there = stem == func.any(func.tsvector_to_array(memories.c.words))
    return select(func.count(stem)).where(is_there).correlate(memories).scalar_subquery()


def _shortened(query: str) -> str:
    return " ".join(query.split()[:MAX_QUERY_WORDS])


def _config(language: str) -> ColumnElement[Any]:
    """A configuration of Postgres. Its name comes from the settings, which know all names."""
    assert language.isalpha()
    return literal_column(f"'{language}'::regconfig", REGCONFIG)
