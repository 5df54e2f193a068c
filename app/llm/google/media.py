"""Images, recordings, videos and documents as parts of a request."""

from mimetypes import guess_type
from typing import Any, assert_never
from urllib.parse import urlsplit

from app.domain.threads.media_placeholders import placeholder
from app.domain.threads.messages import Base64Source, FileSource, Media, UrlSource

_YOUTUBE = frozenset({"youtu.be", "youtube.com", "www.youtube.com", "m.youtube.com"})


def media_part(media: Media) -> dict[str, Any]:
    """The part with the bytes, or with the address, from which the API loads them itself."""
    match media.source:
        case Base64Source(media_type, data):
            return {"inlineData": {"mimeType": media_type, "data": data}}
        case UrlSource(url):
            file = {"fileUri": url}
            if (guessed := _type_of(url)) is not None:
                file["mimeType"] = guessed
            return {"fileData": file}
        case FileSource():
            return {"text": placeholder(media)}
        case _:
            assert_never(media.source)


def media_type_of(media: Media) -> str | None:
    match media.source:
        case Base64Source(media_type):
            return media_type
        case UrlSource(url):
            return _type_of(url)
        case FileSource():
            return None
        case _:
            assert_never(media.source)


def _type_of(url: str) -> str | None:
    """The media type by the address; None if it doesn't say."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return "video/mp4" if parts.hostname in _YOUTUBE else guess_type(parts.path)[0]
