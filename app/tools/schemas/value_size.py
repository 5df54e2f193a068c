"""How large a JSON value is, for what has to look at each part of it while nothing else runs."""

from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 100
"""The validator recurses natively: far deeper values would overflow its stack."""
MAX_VALUES = 100_000
MAX_BITS = 10_000
"""Of all integers beyond 64 bits: `uniqueItems` compares each of those with each other one."""

_CHARACTERS_PER_VALUE = 100
_WEIGHT_OF_A_BIT = 10
_WEIGHT_OF_AN_EXTREME_FLOAT = 500
"""`multipleOf` computes exact fractions of such numbers."""


class ValueTooLarge(ValueError):
    """A value that no schema can be checked against; the message says why."""


@dataclass(slots=True)
class ValueSize:
    values: int = 0
    weight: int = 0
    """As `values`, where long texts and large numbers count as many."""
    characters: int = 0
    bits: int = 0
    """Of the integers beyond 64 bits."""

    def add(self, value: Any) -> None:
        self.values += 1
        self.weight += 1
        if isinstance(value, str):
            self.characters += len(value)
            self.weight += len(value) // _CHARACTERS_PER_VALUE
        elif isinstance(value, float):
            if value and not 1e-18 < abs(value) < 1e18:
                self.weight += _WEIGHT_OF_AN_EXTREME_FLOAT
        elif isinstance(value, int) and value.bit_length() > 64:
            self.bits += value.bit_length()
            self.weight += value.bit_length() * _WEIGHT_OF_A_BIT


def size_of(value: Any) -> ValueSize:
    """Count all parts of a value, names included. Raises TooLarge."""
    size = ValueSize()
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        if size.values + len(level) > MAX_VALUES:
            raise ValueTooLarge(f"it has more than {MAX_VALUES} values. Send less at a time")
        below: list[Any] = []
        for one in level:
            size.add(one)
            if isinstance(one, dict):
                for name in one:
                    size.add(name)
                below += one.values()
            elif isinstance(one, list):
                below += one
        if not below:
            break
        level = below
    else:
        raise ValueTooLarge(f"nested deeper than {MAX_DEPTH} levels")
    if size.bits > MAX_BITS:
        raise ValueTooLarge("it has too many integers beyond 64 bits. Send them as text")
    return size
