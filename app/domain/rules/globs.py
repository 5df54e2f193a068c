"""Globs, matched in linear time without backtracking, because a model writes the text.

A glob is split at each `*` into segments. The first segment must match at the beginning of the text, the last
one at its end. Each segment between is matched at its first position: a later one only leaves less text for
the next segment.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from msgspec import Struct

_MAX_KNOWN_CHARACTERS = 256


class BadGlob(ValueError):
    """The text isn't a glob; the message says why."""


class _OneOf(Struct, frozen=True):
    """One character: within any of the ranges, or, when negated, within none of them."""

    ranges: tuple[tuple[str, str], ...]
    is_negated: bool

    def allows(self, character: str) -> bool:
        return any(low <= character <= high for low, high in self.ranges) is not self.is_negated


_ANY_CHARACTER = _OneOf((), is_negated=True)
_Elements: TypeAlias = Sequence[str | _OneOf]
"""Elements that match one character each: that character, or one of a set."""


class _Segment:
    """The elements between two `*`; they match texts of exactly their number."""

    def __init__(self, elements: _Elements) -> None:
        self._elements = elements
        self.length = len(elements)
        exact = [each for each in elements if isinstance(each, str)]
        self._literal = "".join(exact) if len(exact) == self.length else None
        self._mask = lru_cache(_MAX_KNOWN_CHARACTERS)(self._mask_of)

    def is_at(self, text: str, position: int) -> bool:
        if self._literal is not None:
            return text.startswith(self._literal, position)
        return self.end_of_first(text, position, position + self.length) is not None

    def end_of_first(self, text: str, begin: int, end: int) -> int | None:
        """The end of its first match in `text[begin:end]`."""
        if self._literal is not None:
            found = text.find(self._literal, begin, end)
            return None if found == -1 else found + self.length
        # Bit n is set if the last n + 1 characters match the first n + 1 elements.
        matched, complete = 0, 1 << (self.length - 1)
        for position in range(begin, end):
            matched = (matched << 1 | 1) & self._mask(text[position])
            if matched & complete:
                return position + 1
        return None

    def _mask_of(self, character: str) -> int:
        """The elements that allow a character, as bits."""
        return sum(1 << n for n, one in enumerate(self._elements) if _allows(one, character))


@dataclass(frozen=True)
class Glob:
    """`*` matches any text, `?` one character, `[ab]` one of a set, `[!ab]` one outside of it."""

    text: str
    _segments: tuple[_Segment, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Raises BadGlob when the text isn't one."""
        object.__setattr__(self, "_segments", _segments_of(self.text))

    def fits(self, text: str) -> bool:
        """Whether the glob matches the whole text."""
        first, *others = self._segments
        if not others:
            return len(text) == first.length and first.is_at(text, 0)
        *between, last = others
        position, end = first.length, len(text) - last.length
        if position > end or not (first.is_at(text, 0) and last.is_at(text, end)):
            return False
        for segment in between:
            after = segment.end_of_first(text, position, end)
            if after is None:
                return False
            position = after
        return True


def _segments_of(text: str) -> tuple[_Segment, ...]:
    segments: list[list[str | _OneOf]] = [[]]
    position = 0
    while position < len(text):
        sign = text[position]
        position += 1
        if sign == "*":
            segments.append([])
        elif sign == "?":
            segments[-1].append(_ANY_CHARACTER)
        elif sign == "[":
            end = text.find("]", position + 1)
            if end == -1:
                raise BadGlob(f"the [ in {text!r} isn't closed")
            segments[-1].append(_one_of(text[position:end]))
            position = end + 1
        else:
            segments[-1].append(sign)
    first, *others = segments
    if not others:
        return (_Segment(first),)
    *between, last = others
    return (_Segment(first), *(_Segment(each) for each in between if each), _Segment(last))


def _one_of(inside: str) -> _OneOf:
    """The characters within brackets: `a-z` is a range, `!` at the beginning negates."""
    signs = inside.removeprefix("!")
    ranges: list[tuple[str, str]] = []
    position = 0
    while position < len(signs):
        is_range = position + 2 < len(signs) and signs[position + 1] == "-"
        low, high = signs[position], signs[position + 2] if is_range else signs[position]
        if low > high:
            raise BadGlob(f"[{inside}] has the range {low}-{high}, which is empty")
        ranges.append((low, high))
        position += 3 if is_range else 1
    if not ranges:
        raise BadGlob(f"[{inside}] names no characters")
    return _OneOf(tuple(ranges), is_negated=signs != inside)


def _allows(element: str | _OneOf, character: str) -> bool:
    return element == character if isinstance(element, str) else element.allows(character)
