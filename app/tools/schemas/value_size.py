"""Measures a JSON value, for code that visits each of its parts and blocks the event loop meanwhile."""

from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 100
"""The validator recurses natively: a much deeper value would overflow its stack."""
MAX_VALUES = 100_000
MAX_BITS = 10_000
"""Total bits of the integers beyond 64 bits. `uniqueItems` compares each pair of them."""

_CHARACTERS_PER_VALUE = 100
_WEIGHT_OF_A_BIT = 10
_WEIGHT_OF_AN_EXTREME_FLOAT = 500
"""`multipleOf` computes exact fractions of such numbers."""


class ValueTooLarge(ValueError):
    """A value that is too large to check. The message says why."""


@dataclass(slots=True)
class ValueSize:
    values: int = 0
    weight: int = 0
    """As `values`, but long texts and large numbers count more than once."""
    characters: int = 0
    bits: int = 0
    """Total bits of the integers beyond 64 bits."""

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
    """Count all parts of a value, names included. Raises ValueTooLarge."""
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
