"""Which known name a misspelt one may mean."""

from collections.abc import Iterable
from difflib import get_close_matches

MAX_NAME_LENGTH = 50
"""Longer names get no suggestion, because the comparison takes quadratic time."""


def closest_name(wanted: str, known: Iterable[str]) -> str | None:
    """The known name that is most similar; None if none is."""
    if len(wanted) > MAX_NAME_LENGTH:
        return None
    by_lower_case = {name.lower(): name for name in known}
    close = get_close_matches(wanted.lower(), by_lower_case)
    return next((by_lower_case[each] for each in close), None)
