"""The result of a call for the model and for programs, from the answer of a server, with its files."""

import binascii
from base64 import b64decode

from app.domain.errors import FileNotSaved, HoldfastError, OwnershipLost
from app.domain.files.files import MAX_NAME_CHARACTERS
from app.domain.files.signatures import SIGNATURE_BYTES, media_type_by_signature
from app.domain.json_values import storable_text
from app.domain.structs import replace
from app.domain.tools.tool_calls import ResultStatus, ToolDescriptor, ToolResult
from app.runtime.ports.tool_context import ToolContext
from app.runtime.ports.tool_files import OpenFile
from app.tools.functions.result_files import MAX_RESULT_FILES, ToolFile, attached, with_attached
from app.tools.functions.results import result_of
from app.tools.mcp.client import ServerAnswer, ServerFile
from app.tools.result_limits import MAX_ERROR_CHARACTERS, shortened

NOTHING = "(no output)"


async def with_files(result: ToolResult, answer: ServerAnswer, context: ToolContext) -> ToolResult:
    """The result with the answer's files. The text names a file that can't be saved, and why."""
    if not answer.files or result.status is not ResultStatus.SUCCESS:
        return result
    saved: list[OpenFile] = []
    parts = [dict(part) for part in answer.parts]
    notes: list[str] = []
    for number, file in enumerate(answer.files):
        try:
            if number >= MAX_RESULT_FILES:
                raise FileNotSaved(f"only the first {MAX_RESULT_FILES} files of a result are kept")
            [one] = await attached(context, [_tool_file(file)])
        except OwnershipLost:
            raise
        except HoldfastError as error:
            notes.append(f"[{file.name}: not shown, because {error}]")
            continue
        saved.append(one)
        parts[file.part]["file_id"] = one.id
    if notes:
        result = replace(result, message="\n".join([result.text, *notes]))
    if saved and result.metadata is not None and "content" in result.metadata:
        result = result.with_metadata(content=parts)
    return with_attached(result, saved)


def _tool_file(file: ServerFile) -> ToolFile:
    """The file with its bytes. The signature counts more than what the server says."""
    try:
        data = b64decode(file.data, validate=True)
    except binascii.Error:
        raise FileNotSaved("its data aren't base64") from None
    known = media_type_by_signature(data[:SIGNATURE_BYTES])
    return ToolFile(_name(file.name), data, known or file.media_type)


def _name(name: str) -> str:
    printable = "".join(each for each in storable_text(name) if each.isprintable())
    return printable[:MAX_NAME_CHARACTERS] or "file"


def tool_result(descriptor: ToolDescriptor, answer: ServerAnswer, max_bytes: int) -> ToolResult:
    """Convert an answer. What is too large is cut, and says so."""
    if answer.is_error:
        why = shortened(answer.text or "the server reported an error", MAX_ERROR_CHARACTERS)
        return ToolResult.error(descriptor.name, why)
    is_silent = not answer.text and answer.data is None
    text: str | None = NOTHING if is_silent else answer.text or None
    metadata = {"content": list(answer.parts)} if answer.parts else None
    whole = ToolResult(descriptor.name, ResultStatus.SUCCESS, answer.data, text, metadata=metadata)
    return result_of(descriptor, whole, max_bytes)
