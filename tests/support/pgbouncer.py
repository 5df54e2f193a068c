"""PgBouncer in transaction mode in front of a cluster; a test may restart it during use."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

from app.embedded_postgres import programs
from tests.support.clusters import PORT, Cluster
from tests.support.conditions import eventually
from tests.support.ports import free_port

CONNECTIONS = 6
"""Connections of PgBouncer to the server."""
_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""The folder of server programs on Debian; it may be missing in PATH."""


def program() -> str:
    found = shutil.which("pgbouncer", path=os.pathsep.join((os.environ.get("PATH", ""), *_SBIN)))
    if found is None:
        raise FileNotFoundError(
            "PgBouncer isn't on this machine: apt-get install --no-install-recommends pgbouncer"
        )
    return found


class PgBouncer:
    """Few server connections, used in rotation, so that code that relies on a session fails at once."""

    def __init__(self, folder: Path, cluster: Cluster, database: str) -> None:
        folder.chmod(0o755)
        self._folder = folder
        self._database = database
        self._port = free_port()
        self._user = programs.server_user(folder)
        self._process: asyncio.subprocess.Process | None = None
        (folder / "pgbouncer.ini").write_text(
            f"[databases]\n{database} = host={cluster.folder} port={PORT} user=postgres\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self._port}\nunix_socket_dir =\n"
            "auth_type = any\npool_mode = transaction\nserver_round_robin = 1\n"
            f"default_pool_size = {CONNECTIONS}\nmin_pool_size = {CONNECTIONS}\n"
            "max_client_conn = 200\n"
            "server_login_retry = 1\nserver_connect_timeout = 2\n"
        )

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/{self._database}?sslmode=disable"

    @property
    def log(self) -> str:
        return (self._folder / "pgbouncer.log").read_text()

    async def start(self) -> None:
        with (self._folder / "pgbouncer.log").open("ab") as output:
            self._process = await self._begin(output)

        async def listens() -> bool:
            assert self._process is not None
            assert self._process.returncode is None, self.log
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self._port)
            except OSError:
                return False
            writer.transport.abort()
            return True

        await eventually(listens)

    async def stop(self) -> None:
        """Stop at once; all client connections are closed."""
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            await process.wait()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def _begin(self, output: IO[bytes]) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            program(),
            self._folder / "pgbouncer.ini",
            # PgBouncer refuses to run as root.
            user=None if self._user.is_current else self._user.uid,
            group=None if self._user.is_current else self._user.gid,
            extra_groups=None if self._user.is_current else [],
            cwd=self._folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


@asynccontextmanager
async def pgbouncer(cluster: Cluster, database: str) -> AsyncIterator[PgBouncer]:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-pgbouncer-"))
    bouncer = PgBouncer(folder, cluster, database)
    try:
        await bouncer.start()
        yield bouncer
    finally:
        await bouncer.stop()
        shutil.rmtree(folder, ignore_errors=True)
