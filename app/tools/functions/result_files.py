"""Files in the result of a tool: saved as artifacts of the run, and shown to the model and to clients."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from app.domain.errors import FileNotSaved
from app.domain.files.readable import media_type_for_models
from app.domain.ids import FileId
from app.domain.structs import replace
from app.domain.threads.messages import FileSource, Media
from app.domain.tools.tool_calls import ResultStatus, ToolResult
from app.runtime.ports.tool_context import ToolContext
from app.runtime.ports.tool_files import OpenFile

MAX_RESULT_FILES = 20


@dataclass(frozen=True, slots=True)
class ToolFile:
    """A file that a tool returns. Without `media_type` the signature of the bytes decides."""

    name: str
    data: bytes | AsyncIterator[bytes] = field(repr=False)
    media_type: str | None = None


class ResultWithFiles(Struct, frozen=True):
    """A tool's result with files. Each one is a `ToolFile`, or the id of a file that was saved before.

    The model reads images, recordings, videos and PDFs behind the value. It is told the ids of other files.
    """

    value: Any
    files: Sequence[ToolFile | str]


async def attached(context: ToolContext, files: Sequence[ToolFile | str]) -> list[OpenFile]:
    """Save the files that aren't saved yet, and let the run's thread refer to all of them."""
    if len(files) > MAX_RESULT_FILES:
        raise FileNotSaved(f"a result has at most {MAX_RESULT_FILES} files: put several into one")
    return [await _attached(context, file) for file in files]


async def _attached(context: ToolContext, file: ToolFile | str) -> OpenFile:
    if isinstance(file, ToolFile):
        file_id = await context.save_file(file.name, file.data, media_type=file.media_type)
        return await context.open_file(file_id)
    if context.files is None:
        raise FileNotSaved("a result can have files only while the tool runs")
    return await context.files.refer(FileId(file))


def with_attached(result: ToolResult, files: Sequence[OpenFile]) -> ToolResult:
    """The result with these files: as media if models can read them, else named in the text."""
    if result.status is not ResultStatus.SUCCESS or not files:
        return result
    media = [found for file in files if (found := media_of(file)) is not None]
    notes = [_note(file) for file in files if media_of(file) is None]
    has_text = result.message is not None or result.data is not None
    names = ", ".join(file.name or file.id for file in files)
    texts = [result.text] if has_text else [f"[{names}]"] if media else []
    message = "\n".join([*texts, *notes])
    return replace(
        result,
        message=message if notes or not has_text else result.message,
        media=tuple(media),
    )


def media_of(file: OpenFile) -> Media | None:
    """The file as a content part; None if models can't read its type."""
    type_ = media_type_for_models(file.media_type)
    return None if type_ is None else Media(type_, FileSource(FileId(file.id)), file.name)


def _note(file: OpenFile) -> str:
    return f"[the file {file.name!r} of type {file.media_type}, {file.size} bytes, has the id {file.id}]"
