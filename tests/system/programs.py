"""The programs that this tier needs from the distribution, and the packages that they are in.

Says what is missing, and fails when something is; with `--packages` it prints the packages alone, for
whoever installs them. Needs no more than Python itself: nothing else may be installed yet.
"""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

PACKAGES = {
    "chromium": "chromium",
    "curl": "curl",
    "nginx": "nginx",
    "node": "nodejs",
    "npm": "npm",
    "pgbouncer": "pgbouncer",
    "postgres": "postgresql",
}
_ALSO_IN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where Debian keeps servers; not everybody has it in the PATH."""


def path_of(program: str) -> str | None:
    versions = map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin")))
    places = (os.environ.get("PATH", ""), *_ALSO_IN, *versions)
    return shutil.which(program, path=os.pathsep.join(places))


def program(name: str) -> str:
    """Where a program of this tier is."""
    found = path_of(name)
    if found is None:
        raise FileNotFoundError(complaint([name]))
    return found


def missing(find: Callable[[str], str | None] = path_of) -> list[str]:
    return [name for name in PACKAGES if find(name) is None]


def complaint(programs: list[str]) -> str:
    packages = " ".join(sorted(PACKAGES[name] for name in programs))
    return (
        f"The system tests need {', '.join(programs)}, which this machine doesn't have. "
        f"Install: apt-get install --no-install-recommends {packages}"
    )


def main(arguments: list[str], find: Callable[[str], str | None] = path_of) -> int:
    lacking = missing(find)
    if "--packages" in arguments:
        print(" ".join(PACKAGES[name] for name in lacking))
        return 0
    if lacking:
        print(complaint(lacking), file=sys.stderr)
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
