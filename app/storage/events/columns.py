"""The events of several runs as parameters of a statement."""

from collections.abc import Iterable, Sequence
from typing import Any

from app.storage.events.event_log import EventEntry
from app.storage.postgres.named_parameters import LONG_TEXT, Rows

EVENTS = Rows(
    "e", {"i": "int", "position": "int", "step": "int", "event_type": "text", "body": LONG_TEXT}
)
"""`i` is the number of the run from 1 on, `position` the event's place among those of its run from 0 on."""


def event_values(groups: Iterable[Sequence[EventEntry]]) -> dict[str, Any]:
    """The parameters of `EVENTS`, for the events of each run."""
    return EVENTS.values(
        {
            "i": index,
            "position": position,
            "step": entry.step,
            "event_type": entry.event_type,
            "body": entry.body,
        }
        for index, entries in enumerate(groups, 1)
        for position, entry in enumerate(entries)
    )
