"""Images and documents as blocks of the Messages API. What it doesn't take becomes a notice."""

import base64
import binascii
from typing import Any, assert_never

from app.domain.threads.media_placeholders import placeholder
from app.domain.threads.messages import Base64Source, FileSource, Media, Source, UrlSource

_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PDF = "application/pdf"


def media_block(media: Media, *, cites: bool) -> dict[str, Any]:
    """A block for the media. `cites` asks the model to cite documents."""
    source = _source(media)
    if source is None:
        return {"text": placeholder(media), "type": "text"}
    block: dict[str, Any] = {"type": media.type, "source": source}
    if media.type == "document":
        if media.title:
            block["title"] = media.title
        if cites:
            block["citations"] = {"enabled": True}
    return block


def _source(media: Media) -> dict[str, Any] | None:
    match media.type:
        case "image":
            return _image(media.source)
        case "document":
            return _document(media.source)
        case "audio" | "video":
            return None
        case _:
            assert_never(media.type)


def _image(source: Source) -> dict[str, Any] | None:
    match source:
        case Base64Source(media_type, data):
            return _bytes(media_type, data) if media_type in _IMAGES else None
        case UrlSource(url):
            return {"type": "url", "url": url}
        case FileSource():
            return None
        case _:
            assert_never(source)


def _document(source: Source) -> dict[str, Any] | None:
    match source:
        case Base64Source(media_type, data):
            return _bytes(media_type, data) if media_type == _PDF else _text(media_type, data)
        case UrlSource(url):
            return {"type": "url", "url": url}
        case FileSource():
            return None
        case _:
            assert_never(source)


def _bytes(media_type: str, data: str) -> dict[str, Any]:
    return {"type": "base64", "media_type": media_type, "data": data}


def _text(media_type: str, data: str) -> dict[str, Any] | None:
    if not media_type.startswith("text/"):
        return None
    try:
        text = base64.b64decode(data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return {"type": "text", "media_type": "text/plain", "data": text}
