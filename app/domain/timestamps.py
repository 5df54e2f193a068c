"""How a moment is written on the wire, and stretches of time."""

from dataclasses import dataclass
from datetime import UTC, datetime


def format_timestamp(at: datetime) -> str:
    """RFC 3339 in UTC with milliseconds, as every timestamp is shown."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Period:
    """From a moment on, until right before another."""

    begin: datetime | None
    end: datetime

    def contains(self, at: datetime) -> bool:
        return at < self.end and (self.begin is None or at >= self.begin)
