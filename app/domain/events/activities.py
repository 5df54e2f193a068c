"""The activities of a run, folded from its events: what a page shows of tools, tasks and children at work."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from app.domain.events.json_patch import PatchInvalid, applied
from app.domain.events.tool_call_events import ActivityDelta, ActivitySnapshot
from app.domain.json_values import Json, JsonObject

MAX_ACTIVITY_BYTES = 500_000
"""Bytes of the events that the activities of a snapshot are made of, and of each activity's content."""
MAX_ACTIVITY_CHANGES = 5_000
"""Snapshots and patch operations that the activities of a snapshot are made of."""
_MAX_DEPTH = 100
_BYTES_OF_A_VALUE = 5
"""Counted for each value, so that many small values have an end too."""


class Activity(Struct, frozen=True):
    """The present content of an activity."""

    message_id: str
    activity_type: str
    content: Json


class Activities(Struct, frozen=True):
    """Present activities of a run, and whether it has more than a snapshot has room for."""

    shown: tuple[Activity, ...] = ()
    has_more: bool = False


class ActivityFold:
    """Applies events of activities. The order of activities is that of their first events."""

    def __init__(self) -> None:
        self._contents: dict[tuple[str, str], Json] = {}

    def apply(self, event_type: str, fields: JsonObject) -> Iterator[None]:
        """Apply one event; the iterator advances by one operation. A patch that doesn't fit changes nothing."""
        key = (fields["message_id"], fields["activity_type"])
        match event_type:
            case ActivitySnapshot.event_type:
                self._contents[key] = fields["content"]
            case ActivityDelta.event_type if key in self._contents:
                content = self._contents[key]
                for operation in fields["patch"]:
                    try:
                        content = applied(content, operation)
                    except PatchInvalid:
                        return
                    yield
                self._contents[key] = content

    def activities(self) -> Activities:
        """All activities but those whose patches have made them too large or too deep."""
        fitting = tuple(
            Activity(*key, content) for key, content in self._contents.items() if _fits(content)
        )
        return Activities(fitting, has_more=len(fitting) < len(self._contents))


def activities_of(events: Iterable[tuple[str, JsonObject]]) -> Activities:
    """The activities after these events."""
    fold = ActivityFold()
    for event_type, fields in events:
        for _ in fold.apply(event_type, fields):
            pass
    return fold.activities()


def _fits(content: Json) -> bool:
    """Whether the content is at most `MAX_ACTIVITY_BYTES` large. Few `copy` operations can make it huge."""
    size = 0
    level = [content]
    for _ in range(_MAX_DEPTH):
        below: list[Json] = []
        for value in level:
            size += _BYTES_OF_A_VALUE
            match value:
                case str():
                    size += len(value)
                case list():
                    below += value
                case dict():
                    size += sum(map(len, value))
                    below += value.values()
            if size + _BYTES_OF_A_VALUE * len(below) > MAX_ACTIVITY_BYTES:
                return False
        if not below:
            return True
        level = below
    return False
