"""The artifacts of a remote agent as files, so that each has an address. Their content stays where it was."""

import binascii
from base64 import b64decode
from collections.abc import AsyncIterator

import structlog

from app.domain.agents.backend_results import Artifact, BackendOutput
from app.domain.errors import Refusal
from app.domain.files.files import MAX_NAME_CHARACTERS
from app.domain.files.signatures import SIGNATURE_BYTES, contradicts
from app.domain.json_values import compact, storable_text
from app.domain.structs import replace
from app.runtime.ports.tool_files import ArtifactFiles

JSON_TYPE = "application/json"

log = structlog.get_logger(__name__)


async def with_files(files: ArtifactFiles | None, output: BackendOutput) -> BackendOutput:
    """The output, whose artifacts have files. One that can't be a file has only its content."""
    if files is None or not output.artifacts:
        return output
    return replace(
        output, artifacts=tuple([await _with_file(files, each) for each in output.artifacts])
    )


async def _with_file(files: ArtifactFiles, artifact: Artifact) -> Artifact:
    data, media_type = _bytes_of(artifact)
    if not data:
        return artifact
    if media_type is not None and contradicts(media_type, data[:SIGNATURE_BYTES]):
        media_type = None
    try:
        file_id = await files.keep(_name_of(artifact), _piece(data), media_type)
    except Refusal as error:
        log.warning("artifact_not_kept", artifact=artifact.id, why=error.code)
        return artifact
    return replace(artifact, file_id=file_id)


def _bytes_of(artifact: Artifact) -> tuple[bytes, str | None]:
    """The bytes and their media type. Text that isn't of a type of text is base64, if it can be."""
    content, media_type = artifact.content, artifact.media_type
    if content is None:
        return b"", None
    if not isinstance(content, str):
        return compact(content).encode("utf-8", "replace"), JSON_TYPE
    is_text = media_type is None or media_type.startswith("text/") or media_type == JSON_TYPE
    if artifact.is_base64 or not is_text:
        try:
            return b64decode(content, validate=True), media_type
        except binascii.Error:
            pass
    return content.encode("utf-8", "replace"), media_type or "text/plain"


def _name_of(artifact: Artifact) -> str | None:
    text = storable_text(artifact.name or artifact.id or "")
    return "".join(each for each in text if each.isprintable())[:MAX_NAME_CHARACTERS] or None


async def _piece(data: bytes) -> AsyncIterator[bytes]:
    yield data
