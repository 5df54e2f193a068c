"""Loads the files of a request just before it is sent. The log and the run keep references only."""

from collections.abc import Mapping, Sequence

from app.domain.files.files import media_of
from app.domain.ids import FileId
from app.domain.structs import replace
from app.domain.threads.media_placeholders import placeholder
from app.domain.threads.messages import (
    Base64Source,
    Block,
    FileSource,
    Media,
    Message,
    Text,
    ToolOutcome,
)
from app.runtime.ports.files import FileReader, LoadedFile
from app.runtime.ports.models import ModelRequest


async def with_files(files: FileReader, request: ModelRequest) -> ModelRequest:
    """The request with the bytes of its files."""
    messages = await with_bytes(files, request.messages)
    return request if messages is request.messages else replace(request, messages=messages)


async def with_bytes(files: FileReader, messages: Sequence[Message]) -> Sequence[Message]:
    """The messages with the bytes of their files. The newest files come first, if not all fit.

    Deleted files, and those that don't fit, become placeholders.
    """
    referred = [source.file_id for _, source in media_of(messages)]
    if not referred:
        return messages
    loaded = await files.load(list(dict.fromkeys(reversed(referred))))
    return [_with_bytes(each, loaded) for each in messages]


def _with_bytes(message: Message, loaded: Mapping[FileId, LoadedFile]) -> Message:
    content = tuple(_block(block, loaded) for block in message.content)
    return message if content == message.content else replace(message, content=content)


def _block(block: Block, loaded: Mapping[FileId, LoadedFile]) -> Block:
    match block:
        case Media(type_, FileSource(file_id), title):
            file = loaded.get(file_id)
            if file is None:
                return Text(placeholder(block))
            return Media(type_, Base64Source(file.media_type, file.data), title or file.name)
        case ToolOutcome(call_id, content):
            return ToolOutcome(call_id, tuple(_block(each, loaded) for each in content))
        case _:
            return block
