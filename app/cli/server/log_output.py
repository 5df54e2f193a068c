"""Sets up logging: one line per event on stderr, also for libraries, in which no value can forge a line."""

import logging
import re
import sys
from contextlib import suppress
from functools import partial
from typing import Any

import structlog

from app.cli.server.plain_lines import plain_line
from app.domain.redaction import Redact, unredacted

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_VERBOSE_LIBRARIES = (
    "a2a",
    "alembic",
    "asyncio",
    "httpcore",
    "httpcore2",
    "httpx",
    "httpx2",
    "pgqueuer",
)
"""Libraries that log every operation at level info."""
_MULTILINE_KEYS = frozenset({"exception", "stack"})


def set_up_logging(level: str, *, as_json: bool, redact: Redact = unredacted) -> None:
    """Log to stderr, one line per event, also for libraries. `redact` removes secrets from each line,
    tracebacks included."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: structlog.typing.Processor
    if as_json:
        renderer = structlog.processors.JSONRenderer()
    elif sys.stderr.isatty():
        renderer = structlog.dev.ConsoleRenderer()
    else:
        renderer = plain_line
    rendering: list[structlog.typing.Processor] = [
        structlog.processors.format_exc_info,
        *([] if as_json else [_escape_control_characters]),
        renderer,
        partial(_redacted, redact),
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *rendering,
            ],
        )
    )
    structlog.configure(
        processors=[*shared, structlog.processors.StackInfoRenderer(), *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=lambda *_: _LineLogger(handler),
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for library in _VERBOSE_LIBRARIES:
        logging.getLogger(library).setLevel(max(logging.WARNING, root.level))
    # During an outage they log a traceback for each error that their caller handles anyway.
    logging.getLogger("asyncpg").setLevel(logging.ERROR)


class _LineLogger:
    """Writes rendered lines to the handler's stream. The records of `logging` would take half of a line's time."""

    def __init__(self, handler: "logging.StreamHandler[Any]") -> None:
        self._handler = handler

    def info(self, line: str) -> None:
        lock = self._handler.lock
        assert lock is not None
        with lock, suppress(OSError, ValueError):
            # An error means that stderr is closed, which must not end the process.
            self._handler.stream.write(f"{line}\n")
            self._handler.flush()

    debug = warning = error = exception = critical = info


def _redacted(redact: Redact, _: object, __: str, line: Any) -> str:
    """Redacts the whole rendered line."""
    return redact(line if isinstance(line, str) else line.decode())


def _escape_control_characters(
    _: object, __: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Escape control characters, so that a value can't forge a log line or control the terminal.

    The lines of a traceback are indented for the same reason.
    """
    for key, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            lines = (
                value.rstrip("\n").split("\n") if key in _MULTILINE_KEYS else [value.rstrip("\n")]
            )
            event[key] = "\n    ".join(_CONTROL_CHARACTERS.sub(_escaped, line) for line in lines)
    return event


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
