"""Slices: one page of a longer list, and the request for one."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar, overload

from msgspec import Struct

T = TypeVar("T", covariant=True)


@dataclass(frozen=True, slots=True)
class Slice(Sequence[T]):
    """Consecutive items of a list, and whether more follow."""

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


class Order(StrEnum):
    ASC = "asc"
    """The oldest first."""
    DESC = "desc"


class BoundedCount(Struct, frozen=True):
    """A number of items that is only counted up to a limit."""

    count: int
    is_exact: bool
    """False if there are more items than the limit, which `count` then is."""


class PageRequest(Struct, frozen=True, kw_only=True):
    """Which items of a sorted list a page has."""

    order: Order = Order.DESC
    after: tuple[Any, ...] | None = None
    """The sort values of the last item of the page before; None for the first page."""
    created_after: datetime | None = None
    """Inclusive, while `created_before` is exclusive: adjoining periods have each item once."""
    created_before: datetime | None = None
    limit: int = 50
