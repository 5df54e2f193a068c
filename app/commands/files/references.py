"""Records which threads refer to which files, in the transaction that accepts their messages."""

from collections.abc import Mapping, Sequence

from app.domain.errors import Invalid
from app.domain.files.files import StoredFile, media_of
from app.domain.ids import FileId, Tenant, ThreadId
from app.domain.threads.messages import Media, Message, WrittenFile
from app.queries.files.reading import file_not_found
from app.storage.files import blobs, files
from app.storage.files.blobs import BlobKey
from app.storage.postgres.database import Connection


async def refer_to_files(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, messages: Sequence[Message]
) -> None:
    """Let the thread refer to the files of these messages; refuse unknown files and wrong media types.

    Files whose bytes came within the messages are created.
    """
    referred = list(media_of(messages))
    if not referred:
        return
    ids = {source.file_id for _, source in referred}
    written = {source.file_id: source.written for _, source in referred if source.written}
    for file_id in sorted(written):
        await create_written(connection, tenant, file_id, written[file_id])
    found = await files.get_all(connection, tenant, ids, lock=True)
    for media, source in referred:
        _check(media, source.file_id, found)
    await files.refer(connection, tenant, thread_id, ids)


async def create_written(
    connection: Connection, tenant: Tenant, file_id: FileId, written: WrittenFile
) -> None:
    """Create the file whose bytes are written, unless the tenant has it."""
    key = BlobKey(tenant, written.blob_id)
    file = StoredFile(
        id=file_id,
        blob_id=await blobs.complete(connection, key, written.sha256, written.size),
        name=written.name,
        media_type=written.media_type,
        size=written.size,
        sha256=written.sha256,
        created_by=written.created_by,
        created_at=written.created_at,
    )
    await files.add_unless_known(connection, tenant, file)


def _check(media: Media, file_id: FileId, found: Mapping[FileId, StoredFile]) -> None:
    file = found.get(file_id)
    if file is None:
        raise file_not_found(file_id)
    if media.type != "document" and not file.media_type.startswith(f"{media.type}/"):
        raise Invalid(
            "media_type_mismatch",
            f"File {file_id} is {file.media_type}, and the part is of type {media.type}. Use a part of its type, "
            "or document.",
        )
