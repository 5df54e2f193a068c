"""A small disk that can really be full: a tmpfs that only the holder process sees.

The holder is a process in its own mount namespace; programs that use the disk are started in that
namespace. The disk vanishes with its last process, however a test ends. Without root rights, the mount
happens as root of a user namespace.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.embedded_postgres.programs import ServerUser, server_user
from tests.system.programs import AS_ROOT, PRIVATELY, program

_MOUNT_AND_HOLD = 'mount -t tmpfs -o "$1" small-disk "$2" && echo mounted && exec cat'
"""Runs until its input is closed."""
_FILLER = "filler"
_PIECE = 1 << 16


class SmallDisk:
    """A disk that the holder sees at `folder`; other processes find an empty folder there."""

    def __init__(self, folder: Path, holder: int, user: ServerUser) -> None:
        self.folder = folder
        self._holder = holder
        self._user = user

    @property
    def within(self) -> tuple[str, ...]:
        """Prefix of a command that sees the disk and runs as a user that Postgres accepts."""
        uid, gid = self._user.uid, self._user.gid
        enter = [program("nsenter"), f"--target={self._holder}", "--mount"]
        if AS_ROOT:
            become = [program("setpriv"), f"--reuid={uid}", f"--regid={gid}", "--clear-groups"]
        else:
            enter += ["--user", "--preserve-credentials"]
            become = [program("unshare"), "--user", f"--map-user={uid}", f"--map-group={gid}"]
        return (*enter, *become)

    def fill(self) -> None:
        """Fill the disk to its last byte."""
        with (self._seen_from_here / _FILLER).open("wb", buffering=0) as filler:
            size = _PIECE
            while size:
                try:
                    filler.write(bytes(size))
                except OSError:
                    size //= 2

    def make_room(self) -> None:
        (self._seen_from_here / _FILLER).unlink()

    @property
    def _seen_from_here(self) -> Path:
        return Path(f"/proc/{self._holder}/root") / self.folder.relative_to("/")


@contextmanager
def small_disk(megabytes: int) -> Iterator[SmallDisk]:
    """A disk owned by the user that runs the servers."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-disk-")).resolve()
    folder.chmod(0o755)
    user = server_user(folder)
    owner = f"uid={user.uid},gid={user.gid}," if AS_ROOT else ""
    holder = subprocess.Popen(
        [
            *(*PRIVATELY, "sh", "-c", _MOUNT_AND_HOLD, "holder"),
            *(f"{owner}size={megabytes}m,mode=700", str(folder)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"mounted\n"
        yield SmallDisk(folder, holder.pid, user)
    finally:
        holder.stdin.close()
        holder.stdout.close()
        holder.wait()
        shutil.rmtree(folder, ignore_errors=True)
