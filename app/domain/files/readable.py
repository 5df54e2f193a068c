"""The files that models can read. Others reach them only by name."""

from app.domain.threads.messages import MediaType

_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_PDF = "application/pdf"


def media_type_for_models(media_type: str) -> MediaType | None:
    """The type of the content part for a file of a tool; None if a provider may refuse the file."""
    if media_type in _IMAGES:
        return "image"
    if media_type == _PDF:
        return "document"
    if media_type.startswith("audio/"):
        return "audio"
    return "video" if media_type.startswith("video/") else None
