"""The wire format of timestamps, and periods."""

from datetime import UTC, datetime

from msgspec import Struct


def format_timestamp(at: datetime) -> str:
    """RFC 3339 in UTC with milliseconds, as all timestamps on the wire."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Period(Struct, frozen=True):
    """A range of time; `begin` is inclusive, `end` exclusive."""

    begin: datetime | None
    end: datetime

    def contains(self, at: datetime) -> bool:
        return at < self.end and (self.begin is None or at >= self.begin)
