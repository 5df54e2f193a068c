"""Postgres servers of a test's own: to be stopped, killed, copied and promoted while others use them."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from app.embedded_postgres import programs
from app.embedded_postgres.programs import ServerUser

_PATIENCE = 60
_QUICK = {"fsync": "off", "full_page_writes": "off", "max_connections": "40"}
PORT = 5432


class Cluster:
    """One data directory, and the server on it when it runs; it listens on a socket in its folder."""

    def __init__(
        self,
        folder: Path,
        user: ServerUser,
        programs_in: Path,
        settings: Mapping[str, str],
        within: Sequence[str] = (),
    ) -> None:
        """`within` stands before every command, and sees to it that the user is the right one."""
        self.folder = folder
        self._within = within
        self._user = user
        self._bin = programs_in
        self._settings = settings

    def url(self, database: str = "postgres") -> str:
        place = f"host={quote(str(self.folder), safe='')}&port={PORT}"
        return f"postgresql://postgres@/{database}?{place}"

    def start(self) -> None:
        settings = {
            **self._settings,
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": str(self.folder),
        }
        options = " ".join(f"-c {key}={value}" for key, value in settings.items())
        self._run("pg_ctl", "start", "--wait", *self._data, f"--log={self._log}", f"-o {options}")

    def stop(self, how: str = "fast") -> None:
        """`fast` ends sessions and writes all down; after `immediate` it has to recover."""
        self._run("pg_ctl", "stop", "--wait", *self._data, f"--mode={how}")

    def promote(self) -> None:
        """A standby takes writes from now on."""
        self._run("pg_ctl", "promote", "--wait", *self._data)

    def reload(self) -> None:
        self._run("pg_ctl", "reload", *self._data)

    def make(self, *options: str) -> None:
        data = f"--pgdata={self.folder / 'data'}"
        who = ("--username=postgres", "--auth=trust")
        self._run("initdb", data, *who, "-E", "UTF8", "--no-sync", *options)

    def copy(self, to: "Cluster") -> None:
        """What runs here, as a standby that follows it."""
        self._run(
            "pg_basebackup",
            f"--pgdata={to.folder / 'data'}",
            *("--checkpoint=fast", "--write-recovery-conf", "--wal-method=stream", "--no-sync"),
            f"--dbname={self.url()}",
        )

    @property
    def runs(self) -> bool:
        return (self.folder / "data" / "postmaster.pid").exists()

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"

    @property
    def _data(self) -> tuple[str, str]:
        return (f"--pgdata={self.folder / 'data'}", f"--timeout={_PATIENCE}")

    def _run(self, program: str, *arguments: str) -> None:
        becomes_user = not self._within and not self._user.is_me
        # The server keeps what it inherits open: its output goes to a file, never to a pipe of ours.
        with (self.folder / "programs.log").open("a+") as output:
            done = subprocess.run(
                [*self._within, self._bin / program, *arguments],
                user=self._user.uid if becomes_user else None,
                group=self._user.gid if becomes_user else None,
                extra_groups=[] if becomes_user else None,
                env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
                cwd=self.folder,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=_PATIENCE,
                check=False,
            )
            output.seek(0)
            assert done.returncode == 0, f"{program}: {output.read()}"


@contextmanager
def cluster_folder(
    programs_in: Path | None = None, within: Sequence[str] = (), **settings: str
) -> Iterator[Cluster]:
    """A place for a cluster; the server on it is stopped in the end. By default of the wheel's programs."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-cluster-")).resolve()
    folder.chmod(0o711)
    user = programs.server_user(folder)
    if not user.is_me:
        os.chown(folder, user.uid, user.gid)
    if programs_in is None:
        programs.let_in(user, folder)
    elif not user.is_me:
        programs._let_through(user, programs_in)
    settings = {**_QUICK, **settings}
    made = Cluster(folder, user, programs_in or programs._bin(), settings, within)
    try:
        yield made
    finally:
        if made.runs:
            made.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running_cluster(programs_in: Path | None = None, **settings: str) -> Iterator[Cluster]:
    """A new cluster, and its server."""
    with cluster_folder(programs_in, **settings) as cluster:
        cluster.make()
        cluster.start()
        yield cluster
