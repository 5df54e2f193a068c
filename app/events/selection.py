"""Which events a reader gets, and which variant of each."""

from collections.abc import Sequence

from msgspec import Struct

from app.events.sse_encoding import Frame


class EventSelection(Struct, frozen=True):
    """A choice of events by their types. With `trace`, events have the fields that only traces need."""

    only: frozenset[str] | None = None
    """The types that pass; None lets all types pass."""
    without: frozenset[str] = frozenset()
    trace: bool = False

    @property
    def is_partial(self) -> bool:
        """Whether some types don't pass."""
        return self.only is not None or bool(self.without)

    def passes(self, event_type: str) -> bool:
        return event_type not in self.without and (self.only is None or event_type in self.only)

    def of(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        if self.is_partial:
            frames = [frame for frame in frames if self.passes(frame.event_type)]
        return [frame.with_trace for frame in frames] if self.trace else frames
