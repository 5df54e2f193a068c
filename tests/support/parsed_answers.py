"""Feeds the bytes of an answer to its parser."""

from collections.abc import Iterable

from app.llm.http.answer_parser import AnswerParser
from app.runtime.ports.models import ModelChunk
from tests.support.transcripts import joined


def parsed(stream: AnswerParser, pieces: Iterable[bytes]) -> list[ModelChunk]:
    """The chunks of an answer that comes in these pieces, and then ends."""
    chunks: list[ModelChunk] = []
    for piece in pieces:
        chunks += stream.feed(piece)
    if not stream.complete:
        chunks += stream.end()
    return chunks


def chunks_without_failure(stream: AnswerParser, pieces: Iterable[bytes]) -> list[ModelChunk]:
    """The chunks of an answer that doesn't fail, adjacent ones of a kind merged."""
    chunks = parsed(stream, pieces)
    assert stream.failure is None
    return joined(chunks)


def failure_in(stream: AnswerParser, pieces: Iterable[bytes]) -> tuple[str, str]:
    """The kind and the detail of the answer's failure."""
    parsed(stream, pieces)
    assert stream.failure is not None
    return stream.failure.kind, stream.failure.detail
