"""Log lines without colours. They are those of structlog's renderer, for a quarter of its time."""

import re
from typing import Any

import structlog

_LEVEL_WIDTH = 9
_EVENT_WIDTH = 30
_TO_QUOTE = re.compile(r"[ \t=\r\n\"']")
_RULE = "=" * 79


def plain_line(_: object, __: str, event: structlog.typing.EventDict) -> str:
    """The time, the level and the name of an event, then its fields by name, then tracebacks."""
    stack, exception = event.pop("stack", None), event.pop("exception", None)
    parts: list[str] = []
    if (timestamp := event.pop("timestamp", None)) is not None:
        parts.append(str(timestamp))
    if (level := event.pop("level", None)) is not None:
        parts.append(f"[{level:<{_LEVEL_WIDTH}}]")
    if (name := event.pop("event", None)) is not None:
        parts.append(f"{name!s:<{_EVENT_WIDTH}}")
    parts += [f"[{event.pop(key)}]" for key in ("logger", "logger_name") if key in event]
    parts += [f"{key}={_text(event[key])}" for key in sorted(event)]
    line = " ".join(parts).rstrip(" ")
    if stack is not None:
        line += f"\n{stack}"
        if exception is not None:
            line += f"\n\n{_RULE}\n"
    return line if exception is None else f"{line}\n{exception}"


def _text(value: Any) -> str:
    if isinstance(value, str) and not _TO_QUOTE.search(value):
        return value
    return repr(value)
