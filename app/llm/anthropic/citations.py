"""The citations of a text block, with their place in the whole text."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.domain.threads.citations import Citation


def citations_of(citations: Sequence[Mapping[str, Any]], start: int, end: int) -> list[Citation]:
    """The API cites blocks as a whole, so the block's place is that of its citations."""
    return [
        Citation(
            url=_text(each.get("url")) or _text(each.get("source")),
            document_id=_text(each.get("file_id")),
            title=_text(each.get("title")) or _text(each.get("document_title")),
            quote=_text(each.get("cited_text")),
            start=start,
            end=end,
        )
        for each in citations
    ]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
