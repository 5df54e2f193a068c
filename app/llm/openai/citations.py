"""The citations in the stream of an OpenAI-compatible server: annotations of its text."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.domain.threads.citations import Citation


def citations_of(annotations: Sequence[Any]) -> list[Citation]:
    """The citations among the annotations. Servers have others, such as those of files."""
    return [
        _citation(annotation["url_citation"])
        for annotation in annotations
        if isinstance(annotation, Mapping)
        and annotation.get("type") == "url_citation"
        and isinstance(annotation.get("url_citation"), Mapping)
    ]


def _citation(raw: Mapping[str, Any]) -> Citation:
    start, end = raw.get("start_index"), raw.get("end_index")
    is_placed = isinstance(start, int) and isinstance(end, int) and 0 <= start < end
    return Citation(
        url=_text(raw.get("url")),
        title=_text(raw.get("title")),
        quote=_text(raw.get("content")),
        start=start if is_placed else None,
        end=end if is_placed else None,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
