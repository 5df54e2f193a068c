"""What may be kept: keys, sizes, and no secrets."""

import re

from app.domain.errors import Conflict, Invalid, TooLarge
from app.domain.json_values import Json, compact, is_unicode
from app.domain.memories.memories import MemoryLimits
from app.domain.redaction import Redact

MAX_KEY_CHARACTERS = 100
MAX_DEPTH = 20
KEY_PATTERN = rf"^[A-Za-z0-9_.:-]{{1,{MAX_KEY_CHARACTERS}}}$"
_KEY = re.compile(KEY_PATTERN)

_SECRETS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{20,}"
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|\bAIza[0-9A-Za-z_-]{35}"
    r"|\bgh[pousr]_[A-Za-z0-9]{30,}"
    r"|\bxox[abeoprs]-[A-Za-z0-9-]{10,}"
    r"|\bhf_[A-Za-z0-9_-]{20,}"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"
    r"|\b(?:password|passwd|passphrase|api[_-]?key|secret|access[_-]?token)\"?\s{0,3}[:=]\s{0,3}\"?[^\s\"]{6,}",
    re.IGNORECASE,
)
"""Keys of well-known services, private keys, tokens, and values that are called a password."""


def checked_key(key: str) -> str:
    """The key, or an error that says what is wrong with it."""
    if not _KEY.fullmatch(key):
        raise Invalid(
            "invalid_request",
            f"A memory's key has 1 to {MAX_KEY_CHARACTERS} of A-Z a-z 0-9 _ . : and -. Use such a key.",
        )
    return key


def text_of(value: Json) -> str:
    """The text by which a value is found: the value itself, or its JSON."""
    return value if isinstance(value, str) else compact(value)


def size_of(key: str, value: Json) -> int:
    return len(key) + len(text_of(value).encode())


def check_value(key: str, value: Json, limits: MemoryLimits, redact: Redact) -> None:
    """Refuse a value that is too large, can't be stored, or has a secret in it."""
    text = text_of(value)
    if not is_unicode(text) or "\0" in text or "\\u0000" in compact(value):
        raise Invalid("invalid_request", "A memory can't have the character U+0000. Remove it.")
    _check_depth(value, 0)
    size = size_of(key, value)
    if size > limits.value_bytes:
        raise TooLarge(
            "memory_too_large",
            f"The memory has {size} bytes, and at most {limits.value_bytes} are kept. Save a shorter text.",
        )
    if redact(text) != text or _SECRETS.search(text) or _SECRETS.search(f"{key}={text}"):
        raise Invalid(
            "memory_has_secret",
            "The text has a password, a key or a token in it. Memories keep no secrets: leave it out.",
        )


def _check_depth(value: Json, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise Invalid(
            "invalid_request", f"A memory has at most {MAX_DEPTH} levels. Save a flatter value."
        )
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            _check_depth(part, depth + 1)


def check_space(count: int, total_bytes: int, limits: MemoryLimits) -> None:
    """Refuse a memory with which its owner would have more than the limits allow."""
    if count > limits.count:
        what = f"{limits.count} memories"
    elif total_bytes > limits.total_bytes:
        what = f"{limits.total_bytes} bytes of memories"
    else:
        return
    raise Conflict(
        "memory_full", f"At most {what} are kept. Forget some that aren't needed, then save again."
    )
