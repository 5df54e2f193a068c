"""File locks that record which processes use a server. The kernel releases the locks of a dead process.

`lock` is held while a process starts or stops the server. `holders` is held shared by every process that uses
the server, so that the last one that leaves can tell.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.domain.errors import DatabaseUnusable

POLL_INTERVAL_SECONDS = 0.02


class ServerLocks:
    def __init__(self, folder: Path) -> None:
        self._lock = folder / "lock"
        self._holders = folder / "holders"

    @contextmanager
    def exclusive(self, timeout: float) -> Iterator[None]:
        """Hold the lock for starting or stopping the server."""
        fd = _open(self._lock)
        try:
            deadline = time.monotonic() + timeout
            while not _locked(fd, fcntl.LOCK_EX):
                if time.monotonic() >= deadline:
                    raise DatabaseUnusable(
                        "Another process has been starting or stopping the embedded Postgres for "
                        f"too long: end the one that holds {self._lock} and try again."
                    )
                time.sleep(POLL_INTERVAL_SECONDS)
            yield
        finally:
            os.close(fd)

    def enter(self) -> int:
        """Register as a user; call within `exclusive`. Returns the file descriptor for `leave`."""
        fd = _open(self._holders)
        fcntl.flock(fd, fcntl.LOCK_SH)
        return fd

    def leave(self, share: int) -> bool:
        """Unregister; call within `exclusive`. Returns whether other users are left."""
        os.close(share)
        fd = _open(self._holders)
        try:
            return not _locked(fd, fcntl.LOCK_EX)
        finally:
            os.close(fd)


def _open(path: Path) -> int:
    # Opened again for each use: a lock belongs to the open file, so that threads of one process lock out
    # each other.
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _locked(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
