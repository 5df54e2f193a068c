"""The media type of bytes, by the signature at their beginning."""

SIGNATURE_BYTES = 16
_BY_PREFIX = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"%PDF-": "application/pdf",
    b"ID3": "audio/mpeg",
    b"\xff\xfb": "audio/mpeg",
    b"\xff\xf3": "audio/mpeg",
    b"\xff\xf2": "audio/mpeg",
    b"OggS": "audio/ogg",
}
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_OTHER_NAMES = {
    "image/jpg": "image/jpeg",
    "audio/mp3": "audio/mpeg",
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "video/ogg": "audio/ogg",
    "application/ogg": "audio/ogg",
    "application/x-pdf": "application/pdf",
}
CHECKED = frozenset({*_BY_PREFIX.values(), *_RIFF.values()})
"""The media types that have a signature."""


def media_type_by_signature(beginning: bytes) -> str | None:
    """The media type of bytes that begin so; None if the signature isn't known."""
    if beginning[:4] == b"RIFF":
        return _RIFF.get(beginning[8:12])
    return next((type_ for head, type_ in _BY_PREFIX.items() if beginning.startswith(head)), None)


def contradicts(declared: str, beginning: bytes) -> bool:
    """Whether the bytes don't have the signature of their declared media type."""
    known = _OTHER_NAMES.get(declared, declared)
    return known in CHECKED and media_type_by_signature(beginning) != known
