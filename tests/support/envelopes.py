"""Events with their whole envelope, restored from the frames of any stream."""

import json
from typing import Any, TypeAlias

from app.domain.events.agent_events import DELTA_EVENTS

Event: TypeAlias = dict[str, Any]


class Envelope:
    """Adds what the frames of a run's own stream leave out: each connection's first event has it."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def restore(self, id: str | None, data: str) -> Event:
        """The event of a frame with `seq`, `thread_id` and `run_id`, in the form of `untimed`."""
        event: Event = json.loads(data)
        if "seq" in event:
            assert id == str(event["seq"])
            self._ids = {name: event[name] for name in ("thread_id", "run_id")}
        assert id is not None
        return untimed({"seq": int(id), **self._ids, **event})


def untimed(event: Event) -> Event:
    """The event without `ts` if it is a delta, because a run's own stream doesn't show that."""
    is_delta = event["event_type"] in DELTA_EVENTS
    return {name: event[name] for name in event if not (is_delta and name == "ts")}
