"""The body of an upload: the bytes themselves, or a form with the file. Headers have the name and the media type."""

import re
from collections.abc import AsyncIterator, Mapping
from email.message import Message
from urllib.parse import unquote

from fastapi import Request

from app.api.files.forms import FormFile, boundary_of
from app.commands.files.writing import NewFile
from app.domain.errors import Invalid, UnsupportedMedia
from app.domain.files.files import MAX_NAME_CHARACTERS
from app.domain.json_values import is_unicode

_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)
MAX_MEDIA_TYPE_CHARACTERS = 100
FORM = "multipart/form-data"


async def upload_of(request: Request) -> tuple[NewFile, AsyncIterator[bytes]]:
    """The name and the media type of the file, and its bytes as they arrive."""
    if "idempotency-key" in request.headers:
        raise Invalid(
            "idempotency_key_unsupported",
            "This operation doesn't support Idempotency-Key. Send the request without it: equal bytes are stored once.",
        )
    header = request.headers.get("content-type", "")
    media_type = header.partition(";")[0].strip().lower()
    if media_type == FORM:
        form = FormFile(boundary_of(header), _pieces_of(request))
        await form.begin()
        return _described(form.headers or {}), form.pieces()
    if media_type.startswith("multipart/") or media_type == "application/x-www-form-urlencoded":
        raise UnsupportedMedia(
            "unsupported_media_type",
            "Send the file as multipart/form-data, or its bytes as the body, with their Content-Type, and the name in "
            "Content-Disposition.",
        )
    return _described(request.headers), _pieces_of(request)


def _described(headers: Mapping[str, str]) -> NewFile:
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type and (
        len(media_type) > MAX_MEDIA_TYPE_CHARACTERS or _MEDIA_TYPE.fullmatch(media_type) is None
    ):
        raise Invalid("invalid_request", "header.content-type: isn't a media type.")
    return NewFile(_name(headers.get("content-disposition", "")), media_type or None)


def _name(disposition: str) -> str | None:
    """The last part of the name in `Content-Disposition`."""
    message = Message()
    message["content-disposition"] = disposition.replace("\r", "").replace("\n", "")
    found = message.get_filename()
    if not found:
        return None
    name = unquote(found).replace("\\", "/").rpartition("/")[2].strip()
    if len(name) > MAX_NAME_CHARACTERS or not name.isprintable() or not is_unicode(name):
        raise Invalid(
            "invalid_request",
            f"header.content-disposition: the file's name must have at most {MAX_NAME_CHARACTERS} printable "
            "characters.",
        )
    return name or None


async def _pieces_of(request: Request) -> AsyncIterator[bytes]:
    """The bytes as they arrive."""
    async for piece in request.stream():
        if piece:
            yield piece
