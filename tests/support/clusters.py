"""Postgres servers that one test stops, kills, copies and promotes while clients use them."""

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

_TIMEOUT_SECONDS = 60
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
        """`within` is a command prefix that runs every program as the right user."""
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
        """`fast` ends sessions and writes a checkpoint; after `immediate` the server must recover."""
        self._run("pg_ctl", "stop", "--wait", *self._data, f"--mode={how}")

    def promote(self) -> None:
        """Promote the standby, so that it takes writes."""
        self._run("pg_ctl", "promote", "--wait", *self._data)

    def reload(self) -> None:
        self._run("pg_ctl", "reload", *self._data)

    def make(self, *options: str) -> None:
        data = f"--pgdata={self.folder / 'data'}"
        access = ("--username=postgres", "--auth=trust")
        self._run("initdb", data, *access, "-E", "UTF8", "--no-sync", *options)

    def copy(self, to: "Cluster") -> None:
        """Copy this cluster into a standby that replicates it."""
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
        return (f"--pgdata={self.folder / 'data'}", f"--timeout={_TIMEOUT_SECONDS}")

    def _run(self, program: str, *arguments: str) -> None:
        becomes_user = not self._within and not self._user.is_current
        # The server keeps inherited files open, so its output goes to a file and never to our pipe.
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
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
            output.seek(0)
            assert done.returncode == 0, f"{program}: {output.read()}"


@contextmanager
def cluster_folder(
    programs_in: Path | None = None, within: Sequence[str] = (), **settings: str
) -> Iterator[Cluster]:
    """A folder for a cluster, whose server is stopped at the end. Uses the wheel's programs by default."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-cluster-")).resolve()
    folder.chmod(0o711)
    user = programs.server_user(folder)
    if not user.is_current:
        os.chown(folder, user.uid, user.gid)
    if programs_in is None:
        programs.grant_access(user, folder)
    elif not user.is_current:
        programs._allow_traversal(user, programs_in)
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
    """A new cluster with a running server."""
    with cluster_folder(programs_in, **settings) as cluster:
        cluster.make()
        cluster.start()
        yield cluster
