"""One data directory and the server on it: joined, shared and left by any number of processes."""

import hashlib
import json
import math
import os
import re
import shlex
import socket
import stat
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import TimeoutExpired

from app.domain.errors import DatabaseUnusable
from app.embedded_postgres import processes, programs
from app.embedded_postgres.locks import ServerLocks
from app.embedded_postgres.programs import ServerUser

PORT = 5432
SOCKET_PATH_LIMIT = 103
"""In bytes, on the strictest system (macOS); Linux has room for four more."""
STOP_MARGIN_SECONDS = 60.0
"""In seconds, for what depends on the machine and not on a recovery."""


@dataclass(frozen=True, slots=True)
class Address:
    socket_dir: str
    port: int


@dataclass(frozen=True, slots=True)
class ServerLease:
    """A share in the running server, and where that listens."""

    share: int
    address: Address


class Cluster:
    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.expanduser().resolve()
        self._data = self.data_dir / "cluster"
        self._run = self.data_dir / "run"
        self._holders = ServerLocks(self._run)
        self._log = self._data / "server.log"
        # Tells this server's processes from all others; also what `ps` shows.
        self._mark = f"holdfast-{hashlib.sha256(os.fsencode(self.data_dir)).hexdigest()[:12]}"

    def join(self, settings: Mapping[str, str] | None, patience: float) -> ServerLease:
        """Take a share in the server, starting it if it doesn't run."""
        try:
            # A server that root starts must pass through, so others may; what's in it is closed.
            self.data_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
            _make_private(self._run, ServerUser(os.geteuid(), os.getegid()))
            with self._holders.exclusive(patience + STOP_MARGIN_SECONDS):
                address = self._running(patience) or self._start(settings, patience)
                return ServerLease(self._holders.enter(), address)
        except (OSError, TimeoutExpired) as error:
            raise DatabaseUnusable(
                f"The embedded Postgres can't use {self.data_dir}: {error}. "
                "Choose another HOLDFAST_DATA_DIR, or set DATABASE_URL."
            ) from error

    def leave(self, hold: ServerLease, patience: float) -> None:
        """Give the share back; the last one out stops the server, cleanly if it lets itself be."""
        if not self._run.is_dir():
            # Somebody removed the folder, so nobody else can use this server either.
            os.close(hold.share)
            self._stop(patience)
            return
        with self._holders.exclusive(patience + STOP_MARGIN_SECONDS):
            if self._holders.leave(hold.share):
                return
            self._stop(patience)
            if Path(hold.address.socket_dir) == self._short_socket_dir:
                with suppress(OSError):
                    self._short_socket_dir.rmdir()

    # -- the server -----------------------------------------------------------------------------

    def _running(self, patience: float) -> Address | None:
        """Where the server listens; waits for one that is still recovering or stopping."""
        deadline = time.monotonic() + patience
        while postmaster := processes.postmaster_of(self._data, self._mark):
            if address := self._address(postmaster.pid):
                return address
            if time.monotonic() >= deadline:
                raise DatabaseUnusable(
                    f"The embedded Postgres in {self.data_dir} is still recovering, or stopping: "
                    "it goes on with it, so start again in a while."
                )
            processes.wait_for_exit([postmaster], processes.POLL_INTERVAL_SECONDS)
        return None

    def _start(self, settings: Mapping[str, str] | None, patience: float) -> Address:
        user = programs.server_user(self._data)
        programs.let_in(user, self.data_dir)
        socket_dir = self._socket_dir(user)
        if not self._data.exists():
            programs.make_cluster(self._data, user)
        self._require_our_major()
        self._clear_remains(socket_dir, patience)
        chosen = self._remembered() if settings is None else dict(settings)
        complaint = programs.run(
            "pg_ctl",
            *("start", "--silent", "--wait", f"--timeout={math.ceil(patience)}"),
            *(f"--pgdata={self._data.name}", f"--log={self._log.relative_to(self.data_dir)}"),
            f"--options={self._options(chosen, socket_dir)}",
            user=user,
            # pg_ctl puts paths into a shell line, so it gets short ones that need no quoting.
            folder=self.data_dir,
            timeout=patience + STOP_MARGIN_SECONDS,
        )
        # It complains as well about a server that is recovering; that one has been waited for.
        address = self._running(patience if complaint is None else 0)
        if address is None:
            raise DatabaseUnusable(
                f"The embedded Postgres in {self.data_dir} doesn't start: "
                f"{self._last_words() or complaint} (its log: {self._log})"
            )
        self._remember(chosen)
        return address

    def _require_our_major(self) -> None:
        found = (self._data / "PG_VERSION").read_text().strip()
        if found != programs.MAJOR:
            raise DatabaseUnusable(
                f"The data in {self.data_dir} is of Postgres {found}, but {programs.MAJOR} is "
                "installed: choose another HOLDFAST_DATA_DIR and restore a dump there."
            )

    def _clear_remains(self, socket_dir: Path, patience: float) -> None:
        """Remove what a server that didn't end well has left.

        Postgres would take its files for those of a living one: it too believes any pid that lives,
        and a zombie's, and refuses to start.
        """
        if stubborn := processes.end_orphans(self._data, self._mark, patience):
            raise DatabaseUnusable(
                f"Processes of a dead Postgres still use {self.data_dir}: "
                f"end {stubborn} and try again."
            )
        if self._answers():
            raise DatabaseUnusable(
                f"A Postgres that can't be seen from here, in another container perhaps, serves "
                f"{self.data_dir}: stop that one, or choose another HOLDFAST_DATA_DIR."
            )
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        for remains in socket_dir.glob(".s.PGSQL.*"):
            remains.unlink(missing_ok=True)
        if self._log.exists():
            self._log.replace(self._log.with_suffix(".log.1"))

    def _stop(self, patience: float) -> None:
        if postmaster := processes.postmaster_of(self._data, self._mark):
            processes.shut_down(postmaster, patience)
        processes.end_orphans(self._data, self._mark, patience)

    def _options(self, settings: Mapping[str, str], socket_dir: Path) -> str:
        fixed = {
            "cluster_name": self._mark,
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": str(socket_dir),
        }
        return " ".join(f"-c {shlex.quote(f'{k}={v}')}" for k, v in {**settings, **fixed}.items())

    def _address(self, postmaster: int) -> Address | None:
        """What the server says about itself once it accepts connections."""
        match self._pid_file():
            case [pid, _, _, port, socket_dir, _, _, "ready"] if pid == str(postmaster):
                return Address(socket_dir, int(port))
        return None

    def _answers(self) -> bool:
        """Whether somebody listens where the pid file says, whoever it is."""
        match self._pid_file():
            case [_, _, _, port, socket_dir, *_]:
                with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
                    probe.connect(f"{socket_dir}/.s.PGSQL.{port}")
                    return True
        return False

    def _pid_file(self) -> list[str]:
        try:
            lines = (self._data / "postmaster.pid").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return []
        return [line.strip() for line in lines]

    def _last_words(self) -> str | None:
        try:
            lines = self._log.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return None
        reasons = [line.partition("FATAL:")[2].strip() for line in lines if "FATAL:" in line]
        return reasons[-1] if reasons else None

    # -- where it listens -----------------------------------------------------------------------

    @property
    def _short_socket_dir(self) -> Path:
        return Path(tempfile.gettempdir()).resolve() / self._mark

    def _socket_dir(self, user: ServerUser) -> Path:
        """Only root and the server's user may enter it: whoever can connect is superuser."""
        if _fits_a_socket(self._data):
            return self._data
        if _fits_a_socket(self._short_socket_dir):
            _make_private(self._short_socket_dir, user)
            return self._short_socket_dir
        raise DatabaseUnusable(
            f"Neither {self._data} nor {self._short_socket_dir} is short enough for a Unix socket: "
            "choose a shorter HOLDFAST_DATA_DIR or TMPDIR."
        )

    # -- settings -------------------------------------------------------------------------------

    def _remembered(self) -> dict[str, str]:
        try:
            return dict(json.loads((self._run / "settings.json").read_text()))
        except (FileNotFoundError, json.JSONDecodeError):  # none yet, or cut short by a crash
            return {}

    def _remember(self, settings: Mapping[str, str]) -> None:
        """Only what a server has started with, or one bad value would lock everybody out."""
        draft = self._run / "settings.json.new"
        draft.write_text(json.dumps(settings))
        draft.replace(self._run / "settings.json")


def _fits_a_socket(folder: Path) -> bool:
    """Short enough, and of characters that mean nothing in Postgres' lists and in an address."""
    path = f"{folder}/.s.PGSQL.{PORT}"
    return len(path) <= SOCKET_PATH_LIMIT and re.fullmatch(r"[A-Za-z0-9/._~@+-]+", path) is not None


def _make_private(folder: Path, user: ServerUser) -> None:
    """A folder that only this user and root may enter; one that somebody else made is refused."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid not in (user.uid, os.geteuid()):
        raise DatabaseUnusable(
            f"{folder} belongs to another user: start as that one, or remove it."
        )
    if info.st_uid != user.uid:
        os.chown(folder, user.uid, user.gid)
    folder.chmod(0o700)
