"""Files: a name and a media type for bytes, which are stored once for each tenant."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from uuid import UUID, uuid5

from msgspec import Struct

from app.domain.ids import FileId, Tenant
from app.domain.json_values import compact
from app.domain.threads.messages import Block, FileSource, Media, Message, Text, ToolOutcome

MAX_INLINE_CHARACTERS = 65_536
"""Of base64 in a message: longer data become a file."""
CHUNK_BYTES = 262_143
"""Of a file's bytes in the database. It is a multiple of three, so that chunks are encoded as base64 one by one."""
MAX_NAME_CHARACTERS = 200
MAX_SAVED_FILES = 1_000
"""Of one run: more files of its tools are refused."""
DEFAULT_MAX_FILE_BYTES = 20_000_000
DEFAULT_MAX_INLINE_BYTES = 10_000_000
_CONTENT = UUID("3f1c1b52-9d0e-5c7a-8d0b-5f6f3b1f2a10")
UNKNOWN_MEDIA_TYPE = "application/octet-stream"


class StoredFile(Struct, frozen=True, kw_only=True):
    """A file as stored. `sha256` is of its bytes, in hexadecimal."""

    id: FileId
    blob_id: str
    name: str | None
    media_type: str
    size: int
    sha256: str
    created_by: str
    created_at: datetime


def id_of_content(tenant: Tenant, sha256: str, media_type: str, name: str | None) -> FileId:
    """The id of a file that came within a message. Equal files of a tenant are one."""
    text = compact([tenant, sha256, media_type, name])
    return FileId(str(uuid5(_CONTENT, text)))


def media_of(messages: Sequence[Message]) -> Iterator[tuple[Media, FileSource]]:
    """The media of messages that are files, in order."""
    for message in messages:
        content = message.content
        # Most messages are one text, and a history has many.
        if len(content) != 1 or type(content[0]) is not Text:
            yield from _media_in(content)


def _media_in(content: Sequence[Block]) -> Iterator[tuple[Media, FileSource]]:
    for block in content:
        match block:
            case Media(source=FileSource() as source):
                yield block, source
            case ToolOutcome(_, inner):
                yield from _media_in(inner)
            case _:
                pass
