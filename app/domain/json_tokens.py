"""Counts the tokens of a JSON text before it is parsed, because parsing can't be interrupted."""

import re

_TEXT = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
"""A string, also an unclosed one, so that no position within it is tried again."""


def has_more_tokens(text: str, limit: int) -> bool:
    """Whether the text has more than `limit` brackets, commas and strings together."""
    if _signs_in(text) + text.count('"') <= limit:
        return False
    tokens = offset = 0
    for found in _TEXT.finditer(text):
        tokens += 1 + _signs_in(text[offset : found.start()])
        if tokens > limit:
            return True
        offset = found.end()
    return tokens + _signs_in(text[offset:]) > limit


def _signs_in(text: str) -> int:
    return text.count(",") + text.count("[") + text.count("{")
