"""Citations: the sources that a model names for pieces of its answer."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from app.domain.json_values import JsonObject, storable_text, without_none
from app.domain.structs import replace

MAX_CITATIONS = 200
"""For one message. More are left out."""
MAX_CITED_CHARACTERS = 4_000
"""Of each text of a citation."""


class Citation(Struct, frozen=True, kw_only=True):
    """One source. `start` and `end` are the cited piece in characters of the text, if the model names it."""

    url: str | None = None
    document_id: str | None = None
    """The provider's id of a document."""
    title: str | None = None
    quote: str | None = None
    """What the source says."""
    start: int | None = None
    end: int | None = None


def placed(citations: Sequence[Citation], before: int, length: int) -> list[Citation]:
    """The citations of a piece that has so many characters before it. Those beyond the text's length are left out."""
    moved = [_moved(each, before) for each in citations]
    return [each for each in moved if each.end is None or each.end <= length]


def _moved(citation: Citation, by: int) -> Citation:
    if citation.start is None or citation.end is None:
        return replace(citation, start=None, end=None)
    return replace(citation, start=citation.start + by, end=citation.end + by)


def bounded(citations: Sequence[Citation]) -> tuple[Citation, ...]:
    """The citations as the log keeps them: so many of them, with texts that can be stored."""
    return tuple(
        replace(
            each,
            url=_text(each.url),
            document_id=_text(each.document_id),
            title=_text(each.title),
            quote=_text(each.quote),
        )
        for each in citations[:MAX_CITATIONS]
    )


def _text(text: str | None) -> str | None:
    return None if text is None else storable_text(text[:MAX_CITED_CHARACTERS])


def citation_to_json(citation: Citation) -> dict[str, Any]:
    source = {
        "url": citation.url,
        "document_id": citation.document_id,
        "title": citation.title,
    }
    has_anchor = citation.start is not None
    return without_none(
        {
            "source": without_none(source),
            "quote": citation.quote,
            "anchor": {"start": citation.start, "end": citation.end} if has_anchor else None,
        }
    )


def citation_from_json(raw: JsonObject) -> Citation:
    return Citation(**raw["source"], quote=raw.get("quote"), **raw.get("anchor", {}))
