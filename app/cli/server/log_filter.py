"""Log lines that every stop brings and that say nothing: streams are cut and waits ended on purpose."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

_EXPECTED = (
    "ASGI callable returned without completing response",
    "Cancel ",
)


class ShutdownLogFilter(logging.Filter):
    """Lets everything pass until the end is expected, and then what doesn't follow from it."""

    def __init__(self) -> None:
        super().__init__()
        self._is_ending = False

    def begin_shutdown(self) -> None:
        self._is_ending = True

    def filter(self, record: logging.LogRecord) -> bool:
        return not (self._is_ending and (_is_cancellation(record) or _is_expected(record)))


@contextmanager
def filtered_logs() -> Iterator[ShutdownLogFilter]:
    """Of uvicorn's own lines only warnings, and at the end only those that tell something."""
    muffler = ShutdownLogFilter()
    logger = logging.getLogger("uvicorn.error")
    level = logger.level
    logger.addFilter(muffler)
    logger.setLevel(max(level, logging.WARNING))
    try:
        yield muffler
    finally:
        logger.removeFilter(muffler)
        logger.setLevel(level)


def _is_cancellation(record: logging.LogRecord) -> bool:
    """Of a request that was still waiting for something."""
    return record.exc_info is not None and record.exc_info[0] is asyncio.CancelledError


def _is_expected(record: logging.LogRecord) -> bool:
    return record.getMessage().startswith(_EXPECTED)
