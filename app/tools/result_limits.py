"""How much of what a tool says reaches the model."""

MAX_RESULT_BYTES = 1 << 18
MAX_ERROR_CHARACTERS = 2_000
MAX_COMPLAINT_CHARACTERS = 500


def shortened(text: str, limit: int) -> str:
    """At most `limit` characters, the last one an ellipsis when some are missing."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def cut_to_bytes(text: str, limit: int, *, is_whole: bool = True) -> str:
    """The text when its UTF-8 fits, else as much as fits and a note that the rest is missing.

    A text that isn't whole is the beginning of a longer one.
    """
    # A character has at most 4 bytes: most texts are known to fit without being encoded.
    if len(text) * 4 <= limit or len(encoded := text.encode()) <= limit:
        return text
    head = encoded[:limit].decode(errors="ignore")
    size = f"{len(encoded)} bytes" if is_whole else f"more than {limit} bytes"
    return f"{head}\n[Truncated: the result has {size}, only the first {limit} are here]"
