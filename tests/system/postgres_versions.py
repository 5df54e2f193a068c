"""The programs of each supported Postgres version other than the embedded one."""

import json
from contextlib import suppress
from pathlib import Path

from app.embedded_postgres.programs import MAJOR
from app.storage.postgres.database import OLDEST_SERVER

OTHER_VERSIONS = range(OLDEST_SERVER, int(MAJOR))
"""All other tests run on the embedded version."""
_PACKAGES = Path(__file__).parent / "clients" / "node_modules"


def programs_of(major: int) -> Path:
    """From npm packages, which exist for x86-64 only."""
    package = _PACKAGES / f"postgres-{major}"
    if not package.exists():
        raise FileNotFoundError(
            f"There is no {package.name} in {_PACKAGES}: `make test-system` installs it there, on x86-64."
        )
    # A package can't hold links, and install scripts of packages are disabled.
    for link in json.loads((package / "native" / "pg-symlinks.json").read_text()):
        target = package / link["target"]
        with suppress(FileExistsError):
            target.symlink_to((package / link["source"]).relative_to(target.parent))
    return package / "native" / "bin"
