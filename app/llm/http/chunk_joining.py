"""Joins neighbouring chunks of one kind, or of one call, that arrive together."""

from collections.abc import Sequence
from typing import TypeAlias

from app.domain.ids import CallId
from app.runtime.ports.models import CallArguments, ModelChunk, ReasoningChunk, TextChunk

_ChunkKind: TypeAlias = type[TextChunk] | type[ReasoningChunk] | CallId


class ChunkJoiner:
    """Chunks in order. Neighbours of one kind, or of one call, are joined."""

    def __init__(self) -> None:
        self._chunks: list[ModelChunk] = []
        self._pieces: list[str] = []
        self._kind: _ChunkKind | None = None

    def add(self, kind: _ChunkKind, piece: str) -> None:
        if kind != self._kind:
            self._close()
            self._kind = kind
        self._pieces.append(piece)

    def add_chunk(self, chunk: ModelChunk) -> None:
        if isinstance(chunk, CallArguments):
            self.add(chunk.id, chunk.args_delta)
        else:
            self._close()
            self._chunks.append(chunk)

    def take(self) -> Sequence[ModelChunk]:
        self._close()
        chunks, self._chunks = self._chunks, []
        return chunks

    def _close(self) -> None:
        kind, self._kind = self._kind, None
        if kind is None:
            return
        text = "".join(self._pieces)
        self._pieces.clear()
        self._chunks.append(CallArguments(kind, text) if isinstance(kind, str) else kind(text))
