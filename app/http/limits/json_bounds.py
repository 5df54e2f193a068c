"""Limits of the contents of a JSON body, checked on its bytes before it is parsed.

Each value takes microseconds to parse, validate and store, and a body of two megabytes could have a million.
The check uses operations on whole byte strings, so it costs much less than parsing.
"""

from app.domain.errors import Invalid, Refusal, TooLarge, Unreadable

MAX_VALUES = 20_000
"""Values of all kinds on all levels. Names of members don't count."""
MAX_NUMBER_LENGTH = 400
"""Characters. Converting a number takes time quadratic in its length."""
_NOT_IN_NUMBERS = bytes(byte if byte in b"0123456789+-.eE" else ord(" ") for byte in range(256))


def problem_of_json(body: bytes) -> Refusal | None:
    """Why a body is refused, or None. Malformed JSON may pass, because the parser refuses it."""
    if b"\0" in body:
        # Python's parser accepts UTF-16 and UTF-32, which this check can't count.
        return Unreadable("malformed_body", "The body isn't valid JSON in UTF-8.")
    if _separators(body) < MAX_VALUES and len(body) <= MAX_NUMBER_LENGTH:
        return None
    outside = _outside_of_strings(body)
    if outside is None or _separators(outside) >= MAX_VALUES:
        return TooLarge(
            "body_too_large",
            f"The body has more than {MAX_VALUES} values. Send less, or send it in parts.",
        )
    numbers = outside.translate(_NOT_IN_NUMBERS).split(None, MAX_VALUES)
    if max(map(len, numbers), default=0) > MAX_NUMBER_LENGTH:
        return Invalid(
            "invalid_request",
            f"The body has a number of more than {MAX_NUMBER_LENGTH} characters. Send it as a string.",
        )
    return None


def _separators(text: bytes) -> int:
    """At least the number of values less one. An empty list or object counts twice."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _outside_of_strings(body: bytes) -> bytes | None:
    """The body with a space for each string; None if it has too many strings."""
    unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"")
    # Each value may have a name, and each string has two quotes.
    if unescaped.count(b'"') > 4 * MAX_VALUES:
        return None
    return b" ".join(unescaped.split(b'"')[::2])
