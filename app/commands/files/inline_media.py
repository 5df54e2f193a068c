"""Media that come as base64 within a message: large ones become files, so that the log has only references."""

from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress

from app.commands.files.writing import NewFile, WrittenBytes, write_bytes
from app.context import ServiceContext
from app.domain.files.files import MAX_INLINE_CHARACTERS, MAX_NAME_CHARACTERS, id_of_content
from app.domain.json_values import storable_text
from app.domain.principals import Principal
from app.domain.structs import replace
from app.domain.threads.messages import (
    Base64Source,
    Block,
    FileSource,
    Media,
    Message,
    WrittenFile,
)
from app.storage.files.blobs import BlobKey
from app.storage.postgres.database import DATABASE_UNAVAILABLE

_PIECE_CHARACTERS = 262_144
"""A multiple of four, so that each piece is decoded by itself."""


def with_stored_media(
    ctx: ServiceContext, principal: Principal, messages: tuple[Message, ...]
) -> AbstractAsyncContextManager[tuple[Message, ...]]:
    """The messages, with references instead of large media. Their bytes are written before any transaction.

    The transaction that accepts the messages creates the files. Bytes that it doesn't use are deleted at the end.
    """
    if not any(_is_large(block) for message in messages for block in message.content):
        return nullcontext(messages)
    return _with_written_media(ctx, principal, messages)


@asynccontextmanager
async def _with_written_media(
    ctx: ServiceContext, principal: Principal, messages: tuple[Message, ...]
) -> AsyncIterator[tuple[Message, ...]]:
    keys: list[BlobKey] = []
    try:
        yield tuple([await _stored(ctx, principal, message, keys) for message in messages])
    finally:
        for key in keys:
            # Retention deletes what stays.
            with suppress(*DATABASE_UNAVAILABLE):
                await ctx.file_bytes.discard(key)


def _is_large(block: Block) -> bool:
    match block:
        case Media(source=Base64Source(data=data)):
            return len(data) > MAX_INLINE_CHARACTERS
        case _:
            return False


async def _stored(
    ctx: ServiceContext, principal: Principal, message: Message, keys: list[BlobKey]
) -> Message:
    content: list[Block] = []
    for block in message.content:
        match block:
            case Media(source=Base64Source(media_type, data)) if _is_large(block):
                written = await _write(ctx, principal, NewFile(_name(block), media_type), data)
                keys.append(written.key)
                content.append(replace(block, source=_source(ctx, principal, block, written)))
            case _:
                content.append(block)
    return replace(message, content=tuple(content))


async def _write(
    ctx: ServiceContext, principal: Principal, new: NewFile, data: str
) -> WrittenBytes:
    return await write_bytes(
        ctx.file_bytes,
        principal.tenant,
        new,
        _decoded(data),
        ctx.limits.file_bytes,
        _as_written,
    )


async def _decoded(data: str) -> AsyncIterator[bytes]:
    for begin in range(0, len(data), _PIECE_CHARACTERS):
        yield b64decode(data[begin : begin + _PIECE_CHARACTERS])


async def _as_written(written: WrittenBytes) -> WrittenBytes:
    return written


def _source(
    ctx: ServiceContext, principal: Principal, media: Media, written: WrittenBytes
) -> FileSource:
    name = _name(media)
    file_id = id_of_content(principal.tenant, written.sha256, written.media_type, name)
    return FileSource(
        file_id,
        WrittenFile(
            blob_id=written.key.id,
            name=name,
            media_type=written.media_type,
            size=written.size,
            sha256=written.sha256,
            created_by=principal.subject,
            created_at=ctx.clock.now(),
        ),
    )


def _name(media: Media) -> str | None:
    """The title, if it can be the name of a file."""
    title = media.title
    if not title or len(title) > MAX_NAME_CHARACTERS or not title.isprintable():
        return None
    return title if storable_text(title) == title else None
