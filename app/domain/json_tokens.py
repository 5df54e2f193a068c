"""How much work a JSON text is, before it is parsed: parsing can't be interrupted."""

import re

_TEXT = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
"""Also one that isn't closed: then no place within it is tried again."""


def has_more_tokens(text: str, limit: int) -> bool:
    """Whether a JSON text has more brackets, commas and strings than that, together."""
    if _signs_in(text) + text.count('"') <= limit:
        return False
    tokens = place = 0
    for found in _TEXT.finditer(text):
        tokens += 1 + _signs_in(text[place : found.start()])
        if tokens > limit:
            return True
        place = found.end()
    return tokens + _signs_in(text[place:]) > limit


def _signs_in(text: str) -> int:
    return text.count(",") + text.count("[") + text.count("{")
