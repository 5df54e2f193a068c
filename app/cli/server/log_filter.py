"""Drops log lines that every stop causes, because it cuts streams and waits on purpose."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

_EXPECTED = (
    "ASGI callable returned without completing response",
    "Cancel ",
)


class ShutdownLogFilter(logging.Filter):
    """Passes all lines until shutdown begins, then drops those that it causes."""

    def __init__(self) -> None:
        super().__init__()
        self._is_ending = False

    def begin_shutdown(self) -> None:
        self._is_ending = True

    def filter(self, record: logging.LogRecord) -> bool:
        return not (self._is_ending and (_is_cancellation(record) or _is_expected(record)))


@contextmanager
def filtered_logs() -> Iterator[ShutdownLogFilter]:
    """Only warnings of uvicorn are logged, and during shutdown only unexpected ones."""
    log_filter = ShutdownLogFilter()
    logger = logging.getLogger("uvicorn.error")
    level = logger.level
    logger.addFilter(log_filter)
    logger.setLevel(max(level, logging.WARNING))
    try:
        yield log_filter
    finally:
        logger.removeFilter(log_filter)
        logger.setLevel(level)


def _is_cancellation(record: logging.LogRecord) -> bool:
    """Whether it reports a cancelled request."""
    return record.exc_info is not None and record.exc_info[0] is asyncio.CancelledError


def _is_expected(record: logging.LogRecord) -> bool:
    return record.getMessage().startswith(_EXPECTED)
