"""What to do about a module that a tools module imports and that isn't found: install a package, or another name."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_REQUIRED = re.compile(r"^\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
MAX_NAMES = 5
"""The most names that a sentence lists."""


def remedy_of_missing(module: str, folder: Path) -> str:
    """What to do, if a module of this name isn't beside the agents file."""
    file, install = _requirements_file(folder), f"holdfast install {shlex.quote(str(folder))}"
    root = module.partition(".")[0]
    if module != root and _is_found(root):
        return (
            f"the installed {root!r} has no {module!r}: correct the import, or require another version in {file},"
            f" then run: {install}"
        )
    required = list(_required_in(file))
    missing = [name for name in required if not _is_installed(name)]
    same_name = [name for name in required if _normal(name) == _normal(root)]
    if same_name and same_name[0] not in missing:
        return _another_name(same_name[0], root, file)
    if same_name:
        return f"{file} names {same_name[0]!r}, but it isn't installed: run: {install}"
    if missing:
        return (
            f"{file} names {_list_of(missing)}, which isn't installed: run: {install}; if none of them has {root!r},"
            f" name the package that has it there first"
        )
    return f"install the package that has {root!r}: name it in {file}, then run: {install}"


def _another_name(package: str, module: str, file: Path) -> str:
    """The package is installed, but its modules have other names."""
    modules = [
        name
        for name, packages in packages_distributions().items()
        if _normal(package) in map(_normal, packages) and not name.startswith("_")
    ]
    instead = f"import {_list_of(modules)} instead" if modules else "it has no modules"
    return f"{package!r} is installed and has no module {module!r}: {instead}, or name another package in {file}"


def _requirements_file(folder: Path) -> Path:
    """The file that `holdfast install` reads."""
    requirements, project = folder / "requirements.txt", folder / "pyproject.toml"
    return project if project.is_file() and not requirements.is_file() else requirements


def _required_in(file: Path) -> Iterator[str]:
    """The packages that the file names. Options, paths, and those with a condition are left out."""
    try:
        text = file.read_text()
        lines: Any = text.splitlines()
        if file.suffix == ".toml":
            lines = tomllib.loads(text).get("project", {}).get("dependencies", [])
    except (OSError, ValueError, AttributeError):
        return
    for line in lines if isinstance(lines, list) else ():
        if isinstance(line, str) and _names_package(line) and (found := _REQUIRED.match(line)):
            yield found[1]


def _names_package(line: str) -> bool:
    requirement = line.partition("#")[0]
    name = requirement.partition("@")[0].strip()
    return ";" not in requirement and "/" not in name and not name.endswith(".whl")


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def _is_found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:
        return False


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _list_of(names: list[str]) -> str:
    shown = [repr(name) for name in names[:MAX_NAMES]]
    return ", ".join(shown) + (" …" if len(names) > MAX_NAMES else "")
