"""Files that messages refer to, as models get them."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from app.domain.ids import FileId


class LoadedFile(Struct, frozen=True):
    """The bytes of a file as base64."""

    media_type: str
    data: str
    name: str | None = None


class FileReader(Protocol):
    async def load(self, file_ids: Sequence[FileId]) -> Mapping[FileId, LoadedFile]:
        """Load the first files that fit into a request together. Deleted files are left out, too."""


class _NoFiles:
    async def load(self, file_ids: Sequence[FileId]) -> Mapping[FileId, LoadedFile]:
        return {}


NO_FILES: FileReader = _NoFiles()
