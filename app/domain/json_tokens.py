"""Counts the tokens of a JSON text before it is parsed, because parsing can't be interrupted."""

import re

_TEXT = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
"""A string, also an unclosed one, so that no position within it is tried again."""


def has_more_tokens(text: str, limit: int) -> bool:
    """Whether the text has more than `limit` brackets, commas and strings together."""
    if len(text) <= limit:
        # Each of them has a character.
        return False
    return all(count(text, limit) > limit for count in (_with_signs_in_strings, _tokens_of))


def _with_signs_in_strings(text: str, limit: int) -> int:
    """A count that takes little time and is never too small."""
    return _separators_in(text) + text.count('"')


def _tokens_of(text: str, limit: int) -> int:
    """The number of tokens; the count ends once it is above `limit`."""
    tokens = offset = 0
    for found in _TEXT.finditer(text):
        tokens += 1 + _separators_in(text[offset : found.start()])
        if tokens > limit:
            return tokens
        offset = found.end()
    return tokens + _separators_in(text[offset:])


def _separators_in(text: str) -> int:
    return text.count(",") + text.count("[") + text.count("{")
