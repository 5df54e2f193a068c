"""Slices of lists, which are read in parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar, overload

T = TypeVar("T", covariant=True)


@dataclass(frozen=True, slots=True)
class Slice(Sequence[T]):
    """Some items of a list in its order, and whether more follow them."""

    items: tuple[T, ...]
    has_more: bool

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        return self.items[index]
