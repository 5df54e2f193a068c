"""What the bytes of a new file have to be."""

from app.domain.errors import FileNotSaved, Invalid, TooLarge
from app.domain.files.files import MAX_SAVED_FILES, UNKNOWN_MEDIA_TYPE
from app.domain.files.signatures import contradicts, media_type_by_signature


def refuse_too_large(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise TooLarge(
            "body_too_large",
            f"The file is larger than {max_bytes} bytes. Send a smaller one, or a URL.",
        )


def refuse_empty(size: int) -> None:
    if not size:
        raise Invalid("file_empty", "The file has no bytes. Send its bytes as the body.")


def checked_media_type(declared: str | None, beginning: bytes) -> str:
    """The media type of a file with this beginning; by the signature if none is declared."""
    if declared is None or declared == UNKNOWN_MEDIA_TYPE:
        return media_type_by_signature(beginning) or UNKNOWN_MEDIA_TYPE
    if contradicts(declared, beginning):
        raise Invalid(
            "media_type_mismatch",
            f"The bytes aren't {declared}. Send the Content-Type that they have, or leave it out.",
        )
    return declared


def refuse_too_many(number: int) -> None:
    """Refuse the file with this number of its run."""
    if number > MAX_SAVED_FILES:
        raise FileNotSaved(
            f"a run can save at most {MAX_SAVED_FILES} files: put several into one archive"
        )
