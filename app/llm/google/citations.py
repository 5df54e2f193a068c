"""The citations of an answer, from the places in its text that Google's search supports."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from app.domain.structs import replace
from app.domain.threads.citations import Citation


class _Place(Struct, frozen=True):
    """A place in one of the answer's texts. Without `start` the whole text is cited."""

    text: int
    start: int | None = None
    end: int | None = None


def citations_of(texts: Sequence[str], grounding: Mapping[str, Any]) -> list[Citation]:
    """The citations, with their places in the joined texts."""
    chunks = grounding.get("groundingChunks") or []
    starts = [sum(map(len, texts[:index])) for index in range(len(texts))]
    found: list[tuple[int, Citation]] = []
    for support in grounding.get("groundingSupports") or ():
        segment = support.get("segment") or {}
        place = _place_of(texts, segment) if segment.get("endIndex") is not None else None
        if place is None:
            continue
        start = starts[place.text] + (place.start or 0)
        length = len(texts[place.text])
        end = starts[place.text] + (length if place.end is None else place.end)
        for index in support.get("groundingChunkIndices") or ():
            if 0 <= index < len(chunks):
                cited = Citation(start=start, end=end)
                found += [(place.text, each) for each in _with_source(cited, chunks[index])]
    # By text, as the answer has them.
    return [citation for _, citation in sorted(found, key=lambda each: each[0])]


def _with_source(citation: Citation, chunk: Mapping[str, Any]) -> Iterator[Citation]:
    """A citation for each quote from the source; one without a quote if there is none."""
    web, maps, image = (chunk.get(name) or {} for name in ("web", "maps", "image"))
    if web.get("uri"):
        yield replace(citation, url=web["uri"], title=web.get("title"))
    elif maps.get("uri"):
        yield replace(
            citation, url=maps["uri"], title=maps.get("title"), quote=maps.get("text") or None
        )
    elif image.get("sourceUri"):
        yield replace(citation, url=image["sourceUri"], title=image.get("title"))
    elif context := chunk.get("retrievedContext") or {}:
        quotes = [context.get("text"), (context.get("ragChunk") or {}).get("text")]
        named = replace(
            citation, document_id=context.get("documentName"), title=context.get("title")
        )
        texts = list(dict.fromkeys(quote for quote in quotes if quote))
        if texts:
            yield from (replace(named, quote=quote) for quote in texts)
        elif named.document_id or named.title:
            yield named


def _place_of(texts: Sequence[str], segment: Mapping[str, Any]) -> _Place | None:
    """Where a segment is. Its offsets count bytes, and are sometimes wrong; then its text decides."""
    quoted, named = segment.get("text"), segment.get("partIndex")
    if isinstance(named, int) and 0 <= named < len(texts) and texts[named]:
        if (place := _at_offsets(texts, named, segment, 0)) is not None:
            return place
    else:
        named, before = None, 0
        for index, text in enumerate(texts):
            if (place := _at_offsets(texts, index, segment, before)) is not None:
                return place
            before += len(text.encode("utf-8", "replace"))
    cited = _text_with(texts, quoted, named)
    if cited is None or not quoted:
        return None if cited is None else _Place(cited)
    start = texts[cited].find(quoted)
    if start < 0 or texts[cited].find(quoted, start + 1) >= 0:
        return _Place(cited)
    return _Place(cited, start, start + len(quoted))


def _text_with(texts: Sequence[str], quoted: str | None, named: int | None) -> int | None:
    """The only text that can be the segment's; None if there are several."""
    if named is not None and (quoted is None or quoted in texts[named]):
        return named
    if quoted is not None:
        having = [index for index, text in enumerate(texts) if text and quoted in text]
        if len(having) == 1:
            return having[0]
    not_empty = [index for index, text in enumerate(texts) if text]
    return not_empty[0] if len(not_empty) == 1 else None


def _at_offsets(
    texts: Sequence[str], index: int, segment: Mapping[str, Any], before: int
) -> _Place | None:
    """The place by the segment's offsets, if its text is there."""
    encoded = texts[index].encode("utf-8", "replace")
    start, end = (segment.get("startIndex") or 0) - before, (segment.get("endIndex") or 0) - before
    if not 0 <= start < end <= len(encoded):
        return None
    try:
        characters = len(encoded[:start].decode()), len(encoded[:end].decode())
    except UnicodeDecodeError:
        return None
    is_there = texts[index][slice(*characters)] == segment.get("text")
    return _Place(index, *characters) if is_there else None
