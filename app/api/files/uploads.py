"""The body of an upload: the bytes themselves. Headers have the name and the media type."""

import re
from collections.abc import AsyncIterator
from email.message import Message
from urllib.parse import unquote

from fastapi import Request

from app.commands.files.writing import NewFile
from app.domain.errors import Invalid, UnsupportedMedia
from app.domain.files.files import MAX_NAME_CHARACTERS
from app.domain.json_values import is_unicode

_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)
MAX_MEDIA_TYPE_CHARACTERS = 100


def described(request: Request) -> NewFile:
    """The name and the media type in the request's headers."""
    if "idempotency-key" in request.headers:
        raise Invalid(
            "idempotency_key_unsupported",
            "This operation doesn't support Idempotency-Key. Send the request without it: equal bytes are stored once.",
        )
    header = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if header.startswith("multipart/") or header == "application/x-www-form-urlencoded":
        raise UnsupportedMedia(
            "unsupported_media_type",
            "Send the file's bytes as the body, with their Content-Type, and the name in Content-Disposition.",
        )
    if header and (
        len(header) > MAX_MEDIA_TYPE_CHARACTERS or _MEDIA_TYPE.fullmatch(header) is None
    ):
        raise Invalid("invalid_request", "header.content-type: isn't a media type.")
    return NewFile(_name(request.headers.get("content-disposition", "")), header or None)


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


async def pieces_of(request: Request) -> AsyncIterator[bytes]:
    """The bytes as they arrive."""
    async for piece in request.stream():
        if piece:
            yield piece
