"""Log lines that a stop always brings and that say nothing: streams are cut on purpose."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_EXPECTED = (
    "ASGI callable returned without completing response",
    "Exception in ASGI application",
    "Cancel ",
)


class _Muffler(logging.Filter):
    """Lets everything pass until the server stops, and then what isn't expected."""

    def __init__(self) -> None:
        super().__init__()
        self.stopping = False

    def filter(self, record: logging.LogRecord) -> bool:
        return not (self.stopping and record.getMessage().startswith(_EXPECTED))


class Noise:
    def __init__(self, muffler: _Muffler) -> None:
        self._muffler = muffler

    def expect_the_end(self) -> None:
        """From now on, cut streams are what was asked for."""
        self._muffler.stopping = True


@contextmanager
def muffled() -> Iterator[Noise]:
    muffler = _Muffler()
    logger = logging.getLogger("uvicorn.error")
    logger.addFilter(muffler)
    level, logger.level = logger.level, max(logger.level, logging.WARNING)
    try:
        yield Noise(muffler)
    finally:
        logger.removeFilter(muffler)
        logger.setLevel(level)
