"""Records which threads refer to which files, in the transaction that accepts their messages."""

from collections.abc import Mapping, Sequence

from app.domain.errors import Invalid
from app.domain.files.files import StoredFile, media_of
from app.domain.ids import FileId, Tenant, ThreadId
from app.domain.threads.messages import Media, Message
from app.queries.files.reading import file_not_found
from app.storage.files import files
from app.storage.postgres.database import Connection


async def refer_to_files(
    connection: Connection, tenant: Tenant, thread_id: ThreadId, messages: Sequence[Message]
) -> None:
    """Let the thread refer to the files of these messages; refuse unknown files and wrong media types."""
    referred = [(media, source.file_id) for media, source in media_of(messages)]
    if not referred:
        return
    ids = {file_id for _, file_id in referred}
    found = await files.get_all(connection, tenant, ids, lock=True)
    for media, file_id in referred:
        _check(media, file_id, found)
    await files.refer(connection, tenant, thread_id, ids)


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
