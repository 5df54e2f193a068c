"""Redaction: removes known secrets from text, such as that of an exception."""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from typing import Protocol
from urllib.parse import quote, quote_plus

PLACEHOLDER = "[secret]"
MIN_CHARACTERS = 6
"""A shorter value isn't treated as a secret, because it also appears in ordinary text."""

_COMMON = frozenset(
    {"changeme", "default", "example", "holdfast", "localhost", "password", "postgres", "secret"}
)
_MIN_ENCODED = 8
_MIN_LINE = 16
_PASSWORD_IN_URL = re.compile(r"(://[^\s/:@]*:)[^\s/@]+(?=@)")


class Redact(Protocol):
    """Text with each known secret replaced by `[secret]`."""

    def __call__(self, text: str, /) -> str: ...


def unredacted(text: str, /) -> str:
    """The text as it is, where no secrets are known."""
    return text


class Redactor:
    """Replaces secrets, also where they are quoted, escaped or in base64, and passwords in URLs."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if _is_secret(secret) for form in _forms(secret)}
        # The longest first, so that no secret is replaced by a part of it.
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def __call__(self, text: str, /) -> str:
        if self._pattern is not None:
            text = self._pattern.sub(PLACEHOLDER, text)
        if "://" in text:
            text = _PASSWORD_IN_URL.sub(rf"\g<1>{PLACEHOLDER}", text)
        return text


def _is_secret(value: str) -> bool:
    is_long_enough = len(value.strip()) >= MIN_CHARACTERS and len(set(value)) > 2
    return is_long_enough and value.lower() not in _COMMON


def _forms(secret: str) -> Iterator[str]:
    """The forms in which a secret may appear in text."""
    for text in (secret, secret.strip(), *_long_lines(secret)):
        yield text
        yield json.dumps(text)[1:-1]
        yield json.dumps(text, ensure_ascii=False)[1:-1]
        yield repr(text)[1:-1]
        for quoted in (quote(text), quote(text, safe=""), quote_plus(text)):
            yield quoted
            yield re.sub("%[0-9A-F]{2}", lambda escape: escape[0].lower(), quoted)
        yield from _in_base64(text.encode(errors="surrogateescape"))


def _long_lines(secret: str) -> list[str]:
    """The long lines of a secret with several lines: each may appear alone."""
    lines = secret.splitlines()
    return [line for line in lines if len(line) >= _MIN_LINE] if len(lines) > 1 else []


def _in_base64(secret: bytes) -> Iterator[str]:
    """The base64 characters that don't depend on the text around the secret, at each of three offsets."""
    for offset in range(3):
        encoded = b64encode(b"\0" * offset + secret).decode().rstrip("=")
        # The first characters have bits of the text before; so has the last one if its group isn't full.
        first = (0, 2, 3)[offset]
        last = len(encoded) - (0 if (offset + len(secret)) % 3 == 0 else 1)
        part = encoded[first:last]
        if len(part) >= _MIN_ENCODED:
            yield part
            yield part.replace("+", "-").replace("/", "_")
