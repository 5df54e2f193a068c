"""A data directory and its server, which any number of processes share."""

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
from pathlib import Path
from subprocess import TimeoutExpired

from msgspec import Struct

from app.domain.errors import DatabaseUnusable
from app.embedded_postgres import processes, programs
from app.embedded_postgres.locks import ServerLocks
from app.embedded_postgres.programs import ServerUser

PORT = 5432
MAX_SOCKET_PATH_BYTES = 103
"""The limit of macOS; Linux allows four more."""
STOP_MARGIN_SECONDS = 60.0
"""Extra time for starting and stopping without recovery."""


class Address(Struct, frozen=True):
    socket_dir: str
    port: int


class ServerLease(Struct, frozen=True):
    """A process's right to use the running server, and the server's address."""

    share: int
    address: Address


class Cluster:
    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.expanduser().resolve()
        self._data = self.data_dir / "cluster"
        self._run = self.data_dir / "run"
        self._holders = ServerLocks(self._run)
        self._log = self._data / "server.log"
        # Identifies this server's processes in the process table.
        self._mark = f"holdfast-{hashlib.sha256(os.fsencode(self.data_dir)).hexdigest()[:12]}"

    def join(self, settings: Mapping[str, str] | None, timeout: float) -> ServerLease:
        """Get a lease of the server; starts it if it doesn't run."""
        try:
            # Others may pass through this folder, as the server of root must. Its content is private.
            self.data_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
            _make_private(self._run, ServerUser(os.geteuid(), os.getegid()))
            with self._holders.exclusive(timeout + STOP_MARGIN_SECONDS):
                address = self._running(timeout) or self._start(settings, timeout)
                return ServerLease(self._holders.enter(), address)
        except (OSError, TimeoutExpired) as error:
            raise DatabaseUnusable(
                f"The embedded Postgres can't use {self.data_dir}: {error}. "
                "Choose another HOLDFAST_DATA_DIR, or set DATABASE_URL."
            ) from error

    def leave(self, lease: ServerLease, timeout: float) -> None:
        """Release the lease; the last release stops the server."""
        if not self._run.is_dir():
            # The folder was removed, so no other process can use this server either.
            os.close(lease.share)
            self._stop(timeout)
            return
        with self._holders.exclusive(timeout + STOP_MARGIN_SECONDS):
            if self._holders.leave(lease.share):
                return
            self._stop(timeout)
            if Path(lease.address.socket_dir) == self._short_socket_dir:
                with suppress(OSError):
                    self._short_socket_dir.rmdir()

    # -- the server -----------------------------------------------------------------------------

    def _running(self, timeout: float) -> Address | None:
        """The address of a running server; waits while it is recovering or stopping."""
        deadline = time.monotonic() + timeout
        while postmaster := processes.postmaster_of(self._data, self._mark):
            if address := self._address(postmaster.pid):
                return address
            if time.monotonic() >= deadline:
                raise DatabaseUnusable(
                    f"The embedded Postgres in {self.data_dir} is still recovering or stopping. "
                    "It continues, so start again later."
                )
            processes.wait_for_exit([postmaster], processes.POLL_INTERVAL_SECONDS)
        return None

    def _start(self, settings: Mapping[str, str] | None, timeout: float) -> Address:
        user = programs.server_user(self._data)
        programs.grant_access(user, self.data_dir)
        socket_dir = self._socket_dir(user)
        if not self._data.exists():
            programs.make_cluster(self._data, user)
        self._require_same_major()
        self._remove_leftovers(socket_dir, timeout)
        chosen = self._stored_settings() if settings is None else dict(settings)
        error_output = programs.run(
            "pg_ctl",
            *("start", "--silent", "--wait", f"--timeout={math.ceil(timeout)}"),
            *(f"--pgdata={self._data.name}", f"--log={self._log.relative_to(self.data_dir)}"),
            f"--options={self._options(chosen, socket_dir)}",
            user=user,
            # pg_ctl puts paths into a shell command, so it gets relative ones that need no quotes.
            folder=self.data_dir,
            timeout=timeout + STOP_MARGIN_SECONDS,
        )
        # pg_ctl also fails if recovery takes longer than its time-out, so a failure needs no more waiting.
        address = self._running(timeout if error_output is None else 0)
        if address is None:
            raise DatabaseUnusable(
                f"The embedded Postgres in {self.data_dir} doesn't start: "
                f"{self._last_fatal_line() or error_output} (its log: {self._log})"
            )
        self._store_settings(chosen)
        return address

    def _require_same_major(self) -> None:
        found = (self._data / "PG_VERSION").read_text().strip()
        if found != programs.MAJOR:
            raise DatabaseUnusable(
                f"The data in {self.data_dir} is of Postgres {found}, but {programs.MAJOR} is "
                "installed: choose another HOLDFAST_DATA_DIR and restore a dump there."
            )

    def _remove_leftovers(self, socket_dir: Path, timeout: float) -> None:
        """Remove the pid file and sockets of a crashed server.

        Postgres would refuse to start: it takes any living process with that pid, also a zombie, for its server.
        """
        if survivors := processes.end_orphans(self._data, self._mark, timeout):
            raise DatabaseUnusable(
                f"Processes of a dead Postgres still use {self.data_dir}: "
                f"end {survivors} and try again."
            )
        if self._is_listening():
            raise DatabaseUnusable(
                f"Another Postgres, perhaps in another container, serves {self.data_dir}. "
                "Stop that one, or choose another HOLDFAST_DATA_DIR."
            )
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        for socket_file in socket_dir.glob(".s.PGSQL.*"):
            socket_file.unlink(missing_ok=True)
        if self._log.exists():
            self._log.replace(self._log.with_suffix(".log.1"))

    def _stop(self, timeout: float) -> None:
        if postmaster := processes.postmaster_of(self._data, self._mark):
            processes.shut_down(postmaster, timeout)
        processes.end_orphans(self._data, self._mark, timeout)

    def _options(self, settings: Mapping[str, str], socket_dir: Path) -> str:
        fixed = {
            "cluster_name": self._mark,
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": str(socket_dir),
        }
        return " ".join(f"-c {shlex.quote(f'{k}={v}')}" for k, v in {**settings, **fixed}.items())

    def _address(self, postmaster: int) -> Address | None:
        """The address in the server's pid file, once it accepts connections."""
        match self._pid_file():
            case [pid, _, _, port, socket_dir, _, _, "ready"] if pid == str(postmaster):
                return Address(socket_dir, int(port))
        return None

    def _is_listening(self) -> bool:
        """Whether any process listens at the address in the pid file."""
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

    def _last_fatal_line(self) -> str | None:
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
        """The folder of the socket. Only root and the server's user may enter it: all clients are superusers."""
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

    def _stored_settings(self) -> dict[str, str]:
        try:
            return dict(json.loads((self._run / "settings.json").read_text()))
        except (FileNotFoundError, json.JSONDecodeError):  # none yet, or cut short by a crash
            return {}

    def _store_settings(self, settings: Mapping[str, str]) -> None:
        """Store the settings after a successful start, so that a wrong value can't prevent later starts."""
        draft = self._run / "settings.json.new"
        draft.write_text(json.dumps(settings))
        draft.replace(self._run / "settings.json")


def _fits_a_socket(folder: Path) -> bool:
    """Whether a socket path in this folder is short enough and has no special characters."""
    path = f"{folder}/.s.PGSQL.{PORT}"
    return (
        len(path) <= MAX_SOCKET_PATH_BYTES
        and re.fullmatch(r"[A-Za-z0-9/._~@+-]+", path) is not None
    )


def _make_private(folder: Path, user: ServerUser) -> None:
    """Create a folder that only this user and root may enter; refuse one of another user."""
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
