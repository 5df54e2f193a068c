"""Limits on the size of the tool output that the model reads."""

MAX_RESULT_BYTES = 1 << 18
MAX_ERROR_CHARACTERS = 2_000
MAX_PROBLEM_CHARACTERS = 500


def shortened(text: str, limit: int) -> str:
    """At most `limit` characters. A shortened text ends with an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def cut_to_bytes(text: str, limit: int, *, is_whole: bool = True) -> str:
    """Return the text if its UTF-8 fits, else its beginning and a note about the rest.

    `is_whole` is False if the text is itself the beginning of a longer text.
    """
    # A character has at most 4 bytes, so most texts fit without being encoded.
    if len(text) * 4 <= limit or len(encoded := text.encode()) <= limit:
        return text
    head = encoded[:limit].decode(errors="ignore")
    size = f"{len(encoded)} bytes" if is_whole else f"more than {limit} bytes"
    return f"{head}\n[Truncated: the result has {size}, only the first {limit} are here]"
