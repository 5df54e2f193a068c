"""What a statement writes of many runs at once, as the columns that it unnests."""

from collections.abc import Iterable, Sequence
from typing import Any

from app.storage.events.event_log import EventEntry


def event_columns(groups: Iterable[Sequence[EventEntry]]) -> list[list[Any]]:
    return transposed(
        5,
        (
            (index, place, entry.step, entry.event_type, entry.body)
            for index, entries in enumerate(groups, 1)
            for place, entry in enumerate(entries)
        ),
    )


def transposed(width: int, rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as the columns that unnest wants, also when there are none."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    return columns or [[] for _ in range(width)]
