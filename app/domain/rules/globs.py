"""Globs over texts that a model writes: matched in linear time, without backtracking.

A glob is cut at each `*` into segments. The first segment has to begin the text, the last one has to end it.
Each one between is taken at its first place: a later place would only leave less text for the next one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

_MAX_KNOWN_CHARACTERS = 256


class BadGlob(ValueError):
    """The text isn't a glob; the message says why."""


@dataclass(frozen=True, slots=True)
class _OneOf:
    """One character: within any of the ranges, or, when negated, within none of them."""

    ranges: tuple[tuple[str, str], ...]
    is_negated: bool = False

    def allows(self, character: str) -> bool:
        return any(low <= character <= high for low, high in self.ranges) is not self.is_negated


_ANY_CHARACTER = _OneOf((), is_negated=True)
_Elements: TypeAlias = Sequence[str | _OneOf]
"""What stands for one character each: that character itself, or one of several."""


class _Segment:
    """The elements between two `*`: they fit texts of exactly their number."""

    def __init__(self, elements: _Elements) -> None:
        self._elements = elements
        self.length = len(elements)
        exact = [each for each in elements if isinstance(each, str)]
        self._literal = "".join(exact) if len(exact) == self.length else None
        self._masks: dict[str, int] = {}

    def is_at(self, text: str, place: int) -> bool:
        if self._literal is not None:
            return text.startswith(self._literal, place)
        return self.end_of_first(text, place, place + self.length) is not None

    def end_of_first(self, text: str, begin: int, end: int) -> int | None:
        """Where its first place in `text[begin:end]` ends."""
        if self._literal is not None:
            found = text.find(self._literal, begin, end)
            return None if found < 0 else found + self.length
        # Bit n says that the last n + 1 characters are allowed by the first n + 1 elements.
        matched, complete = 0, 1 << (self.length - 1)
        for place in range(begin, min(end, len(text))):
            matched = (matched << 1 | 1) & self._mask(text[place])
            if matched & complete:
                return place + 1
        return None

    def _mask(self, character: str) -> int:
        """The elements that allow a character, as bits."""
        mask = self._masks.get(character)
        if mask is None:
            mask = sum(1 << n for n, one in enumerate(self._elements) if _allows(one, character))
            if len(self._masks) >= _MAX_KNOWN_CHARACTERS:
                self._masks.clear()
            self._masks[character] = mask
        return mask


@dataclass(frozen=True)
class Glob:
    """`*` is any text, `?` one character, `[ab]` one of some, `[!ab]` one of all others."""

    text: str
    _segments: tuple[_Segment, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Raises BadGlob when the text isn't one."""
        object.__setattr__(self, "_segments", _segments_of(self.text))

    def fits(self, text: str) -> bool:
        """Whether the whole of a text is what the glob says."""
        first, *others = self._segments
        if not others:
            return len(text) == first.length and first.is_at(text, 0)
        *between, last = others
        place, end = first.length, len(text) - last.length
        if place > end or not (first.is_at(text, 0) and last.is_at(text, end)):
            return False
        for segment in between:
            after = segment.end_of_first(text, place, end)
            if after is None:
                return False
            place = after
        return True


def _segments_of(text: str) -> tuple[_Segment, ...]:
    segments: list[list[str | _OneOf]] = [[]]
    place = 0
    while place < len(text):
        sign = text[place]
        place += 1
        if sign == "*":
            segments.append([])
        elif sign == "?":
            segments[-1].append(_ANY_CHARACTER)
        elif sign == "[":
            end = text.find("]", place + 1)
            if end < 0:
                raise BadGlob(f"the [ in {text!r} isn't closed")
            segments[-1].append(_one_of(text[place:end]))
            place = end + 1
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
    place = 0
    while place < len(signs):
        is_range = place + 2 < len(signs) and signs[place + 1] == "-"
        low, high = signs[place], signs[place + 2] if is_range else signs[place]
        if low > high:
            raise BadGlob(f"[{inside}] has the range {low}-{high}, which is empty")
        ranges.append((low, high))
        place += 3 if is_range else 1
    if not ranges:
        raise BadGlob(f"[{inside}] names no characters")
    return _OneOf(tuple(ranges), is_negated=signs != inside)


def _allows(element: str | _OneOf, character: str) -> bool:
    return element == character if isinstance(element, str) else element.allows(character)
