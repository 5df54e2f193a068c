"""Who uses a server, by two locks of the kernel: whoever dies lets go of them, however it dies.

`lock` is held while somebody starts or stops the server: one does at a time, and what it has seen
stays true. `holders` is held shared by every user of the server, so that the last one out knows it.
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
    def exclusive(self, patience: float) -> Iterator[None]:
        """Nobody else starts or stops the server meanwhile."""
        fd = _open(self._lock)
        try:
            deadline = time.monotonic() + patience
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
        """Become a holder; to be called `alone`. Returns what `leave` wants back."""
        fd = _open(self._holders)
        fcntl.flock(fd, fcntl.LOCK_SH)
        return fd

    def leave(self, share: int) -> bool:
        """Be a holder no more; to be called `alone`. Returns whether there are others."""
        os.close(share)
        fd = _open(self._holders)
        try:
            return not _locked(fd, fcntl.LOCK_EX)
        finally:
            os.close(fd)


def _open(path: Path) -> int:
    # Opened anew for each use: it is the open file that holds a lock, not the process, so that
    # threads count like processes.
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _locked(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
