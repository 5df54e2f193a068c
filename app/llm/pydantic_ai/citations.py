"""The citations of an answer, from those of pydantic-ai's texts."""

from collections.abc import Iterator, Sequence

from pydantic_ai.messages import Citation as SdkCitation
from pydantic_ai.messages import ModelResponsePart, TextPart, WebCitationSource

from app.domain.structs import replace
from app.domain.threads.citations import Citation


def citations_of(parts: Sequence[ModelResponsePart]) -> tuple[Citation, ...]:
    """The citations, with their places in the whole text of these parts."""
    found: list[Citation] = []
    before = 0
    for part in parts:
        if isinstance(part, TextPart):
            for each in part.citations or ():
                found.extend(_citations(each, before, len(part.content)))
            before += len(part.content)
    return tuple(found)


def _citations(citation: SdkCitation, before: int, length: int) -> Iterator[Citation]:
    """One for each source and quote. Without an anchor the whole part is cited."""
    anchor = citation.anchor
    start, end = (0, length) if anchor is None else (anchor.start, anchor.end)
    for source in citation.sources:
        whole = Citation(title=source.title, start=before + start, end=before + end)
        if isinstance(source, WebCitationSource):
            whole = replace(whole, url=source.url)
        else:
            whole = replace(whole, document_id=source.document_id)
        if not source.excerpts:
            yield whole
        yield from (replace(whole, quote=quote) for quote in source.excerpts)
