"""Loads the modules beside an agents file, and finds the tools, plugins and start-up functions in them."""

import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module, invalidate_caches
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from msgspec import Struct

from app.agents.config_errors import ConfigErrors
from app.agents.missing_modules import remedy_of_missing
from app.builtin_plugins.builtin import BUILTIN_KINDS
from app.builtin_plugins.kinds import PluginKind
from app.domain.errors import ConfigurationError
from app.tools.functions.decorator import FunctionTool
from app.tools.functions.startup import StartupFunction

T = TypeVar("T")
AnyFunctionTool = FunctionTool[..., object]

_loaded_from_folders: set[str] = set()
"""Names in sys.modules that an agents file added. They are removed before the next file is loaded."""


class UserExtensions(Struct, frozen=True):
    """What modules define, by name."""

    tools: Mapping[str, AnyFunctionTool] = {}
    plugins: Mapping[str, PluginKind[Any]] = {}
    startup: Sequence[StartupFunction] = ()


def load_extensions(
    folder: Path, module_names: Sequence[str], problems: ConfigErrors
) -> UserExtensions:
    """Load the modules. Each module that can't be loaded adds a problem."""
    tools: dict[str, AnyFunctionTool] = {}
    plugins: dict[str, PluginKind[Any]] = {}
    startup: dict[StartupFunction, None] = {}
    homes: dict[str, str] = {}
    with _import_path(folder.resolve()) as beside:
        for position, module_name in enumerate(module_names):
            key = f"tools.modules[{position}]"
            if module_name in module_names[:position]:
                problems.add(key, f"{module_name!r} is listed twice; remove one of them")
                continue
            try:
                module = _load(beside, module_name)
                kinds = _defined_in(module, PluginKind)
                found = _defined_in(module, FunctionTool)
                opening = _defined_in(module, StartupFunction)
                if not found and not kinds and not opening:
                    raise ConfigurationError(
                        f"module {module_name!r} defines no tool; decorate a function with @tool"
                        " (from holdfast import tool)"
                    )
            except ConfigurationError as error:
                problems.add(key, str(error))
                continue
            startup |= dict.fromkeys(opening)
            for tool in found:
                name = tool.descriptor.name
                if tools.setdefault(name, tool) is not tool:
                    problems.add(
                        key,
                        f"module {module_name!r} defines a tool {name!r}, and so does"
                        f' {homes[name]!r}; rename one: @tool(name="…")',
                    )
                homes.setdefault(name, module_name)
            for kind in kinds:
                if plugins.setdefault(kind.name, kind) is not kind or kind.name in BUILTIN_KINDS:
                    problems.add(
                        key,
                        f"module {module_name!r} defines a plugin {kind.name!r}, which there is"
                        " already; give it another name",
                    )
    return UserExtensions(tools, plugins, tuple(startup))


@contextmanager
def _import_path(folder: Path) -> Iterator[Path]:
    """Let modules of the folder import each other; modules of Holdfast and of packages aren't shadowed.

    The folder is the last entry of the search path, and removed afterwards. The modules stay in `sys.modules`
    until another file is loaded, so that they can be found by name.
    """
    for name in _loaded_from_folders:
        sys.modules.pop(name, None)
    _loaded_from_folders.clear()
    known = set(sys.modules)
    is_new = str(folder) not in sys.path
    if is_new:
        sys.path.append(str(folder))
    invalidate_caches()
    try:
        yield folder
    finally:
        if is_new and str(folder) in sys.path:
            sys.path.remove(str(folder))
        _loaded_from_folders.update(
            name for name in sys.modules.keys() - known if _is_in(folder, name)
        )


def _is_in(folder: Path, module_name: str) -> bool:
    """Whether the module, or its package, lies directly in the folder."""
    root = module_name.partition(".")[0]
    module = sys.modules.get(root)
    return module is not None and _is_located_in(folder, root, getattr(module, "__spec__", None))


def _is_located_in(folder: Path, root: str, spec: ModuleSpec | None) -> bool:
    if spec is None:
        return False
    # Only the folder is resolved: it may have several paths, and its files may be links.
    locations = [
        Path(location)
        for location in (spec.origin, *(spec.submodule_search_locations or ()))
        if location
    ]
    found = {location.parent.resolve() / location.name for location in locations}
    return not found.isdisjoint({folder / f"{root}.py", folder / root})


def _load(folder: Path, module_name: str) -> ModuleType:
    file = _file_of(folder, module_name)
    _require_free_name(folder, module_name.partition(".")[0])
    try:
        return import_module(module_name)
    except (Exception, SystemExit) as error:
        what = str(error)
        if not isinstance(error, ConfigurationError):
            what = f"{type(error).__name__}: {what}"
        raise ConfigurationError(
            f"{file} can't be imported: {what}{_line_of(error, folder)}; {_remedy(error, folder)}"
        ) from error


def _remedy(error: BaseException, folder: Path) -> str:
    """What to do. A package `app` beside the agents file can't be imported: that name is Holdfast's own."""
    wanted = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
    if wanted == "app" and ((folder / "app").is_dir() or (folder / "app.py").is_file()):
        return (
            f"'app' is Holdfast's own package here: give {folder / 'app'} another name,"
            " and import it under that"
        )
    if isinstance(error, ModuleNotFoundError) and wanted and not _is_beside(folder, wanted):
        return remedy_of_missing(error.name or wanted, folder)
    return "correct it there"


def _is_beside(folder: Path, module: str) -> bool:
    return (folder / module).is_dir() or (folder / f"{module}.py").is_file()


def _file_of(folder: Path, module_name: str) -> Path:
    parts = module_name.split(".")
    if not all(part.isidentifier() for part in parts):
        raise ConfigurationError(f"{module_name!r} isn't a module's name; write it as in an import")
    place = folder.joinpath(*parts)
    files = place / "__init__.py", place.with_suffix(".py")
    for file in files:
        if file.is_file():
            return file
    beside = [
        each.stem if each.is_file() else each.name
        for each in sorted(folder.iterdir())
        if each.suffix == ".py" or (each / "__init__.py").is_file()
    ]
    close = get_close_matches(module_name, beside, n=1)
    hint = f"did you mean {close[0]!r}? Otherwise" if close else "so"
    raise ConfigurationError(
        f"there is no module {module_name!r} beside the agents file; {hint} create {files[1]}"
    )


def _require_free_name(folder: Path, root: str) -> None:
    """Add a problem if Python would import another module of this name instead of the one in the folder."""
    try:
        spec = find_spec(root)
    except ValueError:  # a module without a spec, such as __main__
        spec = None
    if not _is_located_in(folder, root, spec):
        other = spec.origin if spec is not None else None
        raise ConfigurationError(
            f"the name {root!r} belongs to another module ({other or 'built in'}); rename this one"
        )


def _line_of(error: BaseException, folder: Path) -> str:
    """The line of the user's own files where the error occurred."""
    if isinstance(error, SyntaxError):
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(folder)]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""


def _defined_in(module: ModuleType, kind: type[T]) -> list[T]:
    return [value for value in vars(module).values() if isinstance(value, kind)]
