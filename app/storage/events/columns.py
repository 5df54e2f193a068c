"""The values of many rows as column arrays, which a statement unnests."""

from collections.abc import Iterable, Sequence
from typing import Any

from app.storage.events.event_log import EventEntry


def event_columns(groups: Iterable[Sequence[EventEntry]]) -> list[list[Any]]:
    return transposed(
        5,
        (
            (index, position, entry.step, entry.event_type, entry.body)
            for index, entries in enumerate(groups, 1)
            for position, entry in enumerate(entries)
        ),
    )


def transposed(width: int, rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as columns for unnest; empty columns if there are no rows."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    return columns or [[] for _ in range(width)]
