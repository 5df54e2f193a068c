"""Suggestions for misspelt names, and for numbers that are written as text."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

_WITH_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.I)
_SECONDS = {
    "": 1.0,
    "ms": 0.001,
    "s": 1.0,
    "sec": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
}


def did_you_mean(wanted: str, known: Iterable[str]) -> str:
    """The most similar name, or all known names."""
    names = list(known)
    close = get_close_matches(wanted, names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(names)}" if names else "there are none"


def without_unit(value: object) -> str | None:
    """The number that a text such as "1h" or "30" means, in seconds; None for other values."""
    found = _WITH_UNIT.fullmatch(value) if isinstance(value, str) else None
    if found is None or found[2].lower() not in _SECONDS:
        return None
    return f"{float(found[1]) * _SECONDS[found[2].lower()]:g}"
