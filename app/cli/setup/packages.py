"""`holdfast install`: the Python packages that tools import, and those of model providers.

They go into the environment of the running interpreter. The versions of Holdfast's own packages are kept, so a
requirement that contradicts them is refused instead of breaking the server.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from app.distribution import DISTRIBUTION
from app.domain.errors import ConfigurationError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def requirements_in(folder: Path) -> list[str]:
    """What a folder's requirements.txt or pyproject.toml requires, as arguments of pip."""
    requirements, project = folder / "requirements.txt", folder / "pyproject.toml"
    try:
        if requirements.is_file():
            return ["--requirement", str(requirements.resolve())]
        if project.is_file():
            found = tomllib.loads(project.read_text()).get("project", {}).get("dependencies", [])
            if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
                raise ConfigurationError(
                    f"{project}: project.dependencies must be a list of texts."
                )
            return found
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{project} can't be read: {error}") from error
    raise ConfigurationError(
        f"{folder.resolve()} has neither a requirements.txt nor a pyproject.toml: write the packages that "
        "your tools import into a requirements.txt."
    )


def requirements_of_provider(provider: str) -> list[str]:
    """What Holdfast's optional dependency of this name requires."""
    found = [
        one.partition(";")[0].strip()
        for one in distribution(DISTRIBUTION).requires or ()
        if re.search(rf"""extra\s*==\s*["']{re.escape(provider)}["']""", one)
    ]
    if not found:
        raise ConfigurationError(f"Holdfast has no packages for a provider {provider!r}.")
    return found


def install(requirements: Sequence[str], folder: Path) -> None:
    """Install with uv or pip, and show what they print."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", prefix="holdfast-") as constraints:
        constraints.writelines(f"{one.name}=={one.version}\n" for one in _own_packages())
        constraints.flush()
        command = [*_installer(), "--constraint", constraints.name, *requirements]
        if subprocess.run(command, cwd=folder, check=False).returncode != 0:
            raise ConfigurationError(
                "The packages weren't installed; the reason is above. If a package contradicts one of "
                "Holdfast's, require another version of it."
            )


def _installer() -> list[str]:
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--python", sys.executable]
    if find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install"]
    if (pip := shutil.which("pip")) is not None:
        return [pip, "--python", sys.executable, "install"]
    raise ConfigurationError("There is neither uv nor pip: install one of them.")


def _own_packages() -> Iterator[Distribution]:
    """The installed packages that Holdfast needs, and what they need."""
    waiting, seen = [DISTRIBUTION], {DISTRIBUTION}
    while waiting:
        try:
            found = distribution(waiting.pop())
        except PackageNotFoundError:  # an optional one
            continue
        if found.name != DISTRIBUTION:
            yield found
        for requirement in found.requires or ():
            name = _NAME.match(requirement)
            if name is not None and name[0].lower() not in seen:
                seen.add(name[0].lower())
                waiting.append(name[0])
