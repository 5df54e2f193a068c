"""How a moment is written on the wire."""

from datetime import UTC, datetime


def wire_time(at: datetime) -> str:
    """RFC 3339 in UTC with milliseconds, as every timestamp is shown."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
