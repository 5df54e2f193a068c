"""Files that tools save and open."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Protocol

from app.domain.errors import FileNotSaved
from app.domain.files.files import MAX_NAME_CHARACTERS
from app.domain.ids import CallId, FileId
from app.domain.json_values import storable_text


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFile:
    """A file that a tool reads, in pieces: `async for piece in file`. Each loop begins at the first byte."""

    id: str
    name: str | None
    media_type: str
    size: int
    sha256: str
    pieces: Callable[[], AsyncIterator[bytes]] = field(repr=False)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.pieces()

    async def read(self) -> bytes:
        """All bytes at once. Read a large file in pieces instead."""
        return b"".join([piece async for piece in self])


class ArtifactFiles(Protocol):
    """The artifacts of a remote agent, as files."""

    async def keep(
        self, name: str | None, pieces: AsyncIterator[bytes], media_type: str | None
    ) -> FileId:
        """Save a file of the run's thread. Equal ones are one file."""


class ToolFiles(Protocol):
    """The files of a tenant, and those that the tools of one run or background task save."""

    async def save(
        self,
        call_id: CallId,
        idempotency_key: str,
        name: str,
        pieces: AsyncIterator[bytes],
        media_type: str | None,
    ) -> FileId:
        """Save a file once for each call, name and content."""

    async def open(self, file_id: FileId) -> OpenFile: ...

    async def refer(self, file_id: FileId) -> OpenFile:
        """Open a file that the run's thread refers to from now on."""


def checked_name(name: str) -> str:
    """The name of a file to save, or an error that says what is wrong with it."""
    is_valid = 0 < len(name) <= MAX_NAME_CHARACTERS and name.isprintable()
    if not is_valid or storable_text(name) != name:
        raise FileNotSaved(f"a file's name has 1 to {MAX_NAME_CHARACTERS} printable characters")
    return name


async def in_pieces(data: bytes | AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data as pieces."""
    if isinstance(data, bytes | bytearray | memoryview):
        yield bytes(data)
        return
    async for piece in data:
        yield piece
