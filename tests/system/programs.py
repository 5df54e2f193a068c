"""The programs that the system tests need, their Debian packages, and the right to mount.

Prints what is missing and fails; with `--packages` it prints only the missing packages.
Needs only the standard library, because nothing else may be installed yet.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable

PACKAGES = {
    "chromium": "chromium",
    "curl": "curl",
    "mount": "mount",
    "nginx": "nginx",
    "node": "nodejs",
    "npm": "npm",
    "nsenter": "util-linux",
    "pgbouncer": "pgbouncer",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}
AS_ROOT = os.geteuid() == 0
PRIVATELY = (
    ("unshare", "--mount") if AS_ROOT else ("unshare", "--user", "--map-root-user", "--mount")
)
"""Prefix of a command whose mounts no other process sees."""
_ALSO_IN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where Debian installs servers; these folders may be missing in the PATH."""


def path_of(program: str) -> str | None:
    places = (os.environ.get("PATH", ""), *_ALSO_IN)
    return shutil.which(program, path=os.pathsep.join(places))


def program(name: str) -> str:
    """The path of a program that the system tests need."""
    found = path_of(name)
    if found is None:
        raise FileNotFoundError(complaint([name]))
    return found


def missing(find: Callable[[str], str | None] = path_of) -> list[str]:
    return [name for name in PACKAGES if find(name) is None]


def may_mount() -> bool:
    command = (*PRIVATELY, "mount", "-t", "tmpfs", "tmpfs", tempfile.gettempdir())
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def complaint(programs: list[str]) -> str:
    packages = " ".join(sorted({PACKAGES[name] for name in programs}))
    return (
        f"The system tests need {', '.join(programs)}, which this machine doesn't have. "
        f"Install: apt-get install --no-install-recommends {packages}"
    )


def complaints(
    find: Callable[[str], str | None] = path_of, mounts: Callable[[], bool] = may_mount
) -> list[str]:
    """What must be installed or allowed before the system tests can run."""
    if lacking := missing(find):
        return [complaint(lacking)]
    if not mounts():
        return [
            "The system tests fill a disk of their own, which this machine doesn't let them mount. "
            "Run them as root, in a container with CAP_SYS_ADMIN, or allow user namespaces: "
            "sysctl user.max_user_namespaces=10000"
        ]
    return []


def main(
    arguments: list[str],
    find: Callable[[str], str | None] = path_of,
    mounts: Callable[[], bool] = may_mount,
) -> int:
    if "--packages" in arguments:
        print(" ".join(sorted({PACKAGES[name] for name in missing(find)})))
        return 0
    missing_parts = complaints(find, mounts)
    print(*missing_parts, sep="\n", end="\n" if missing_parts else "", file=sys.stderr)
    return 1 if missing_parts else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
