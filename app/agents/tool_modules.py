"""The modules that lie beside an agents file, and the tools and kinds of plugins in them."""

import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module, invalidate_caches
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from app.agents.config_errors import ConfigErrors
from app.builtin_plugins.builtin import BUILTIN_KINDS
from app.builtin_plugins.kinds import PluginKind
from app.domain.errors import ConfigurationError
from app.tools.functions.decorator import FunctionTool

T = TypeVar("T")
AnyFunctionTool = FunctionTool[..., object]

_loaded_from_folders: set[str] = set()
"""Names in sys.modules that are there because of us: forgotten before the next file is loaded."""


@dataclass(frozen=True, slots=True)
class UserExtensions:
    """What modules define, by name."""

    tools: Mapping[str, AnyFunctionTool] = field(default_factory=dict)
    plugins: Mapping[str, PluginKind[Any]] = field(default_factory=dict)


def load_extensions(
    folder: Path, module_names: Sequence[str], problems: ConfigErrors
) -> UserExtensions:
    """Everything that the modules define; what can't be loaded becomes a problem."""
    tools: dict[str, AnyFunctionTool] = {}
    plugins: dict[str, PluginKind[Any]] = {}
    homes: dict[str, str] = {}
    with _importable(folder.resolve()) as beside:
        for position, module_name in enumerate(module_names):
            key = f"tools.modules[{position}]"
            if module_name in module_names[:position]:
                problems.add(key, f"{module_name!r} is listed twice; remove one of them")
                continue
            try:
                module = _load(beside, module_name)
                kinds = _defined_in(module, PluginKind)
                found = _defined_in(module, FunctionTool)
                if not found and not kinds:
                    raise ConfigurationError(
                        f"module {module_name!r} defines no tool; decorate a function with @tool"
                        " (from app.tools.functions.decorator import tool)"
                    )
            except ConfigurationError as error:
                problems.add(key, str(error))
                continue
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
    return UserExtensions(tools, plugins)


@contextmanager
def _importable(folder: Path) -> Iterator[Path]:
    """Within, modules of the folder can import each other as usual; nothing of ours is shadowed.

    The folder comes last in the search path and leaves it again. Modules stay known under their names,
    for what looks them up later, until another file is loaded: the same name is then another module.
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
    """Whether the module, or the package around it, lies directly in the folder."""
    root = module_name.partition(".")[0]
    module = sys.modules.get(root)
    return module is not None and _lies_beside(folder, root, getattr(module, "__spec__", None))


def _lies_beside(folder: Path, root: str, spec: ModuleSpec | None) -> bool:
    if spec is None:
        return False
    # Only the folder is resolved: it may be known by several paths, and files in it may be links.
    places = [
        Path(place) for place in (spec.origin, *(spec.submodule_search_locations or ())) if place
    ]
    found = {place.parent.resolve() / place.name for place in places}
    return not found.isdisjoint({folder / f"{root}.py", folder / root})


def _load(folder: Path, module_name: str) -> ModuleType:
    file = _file_of(folder, module_name)
    _must_be_free(folder, module_name.partition(".")[0])
    try:
        return import_module(module_name)
    except (Exception, SystemExit) as error:
        what = str(error)
        if not isinstance(error, ConfigurationError):
            what = f"{type(error).__name__}: {what}"
        raise ConfigurationError(
            f"{file} can't be imported: {what}{_line_of(error, folder)}; correct it there"
        ) from error


def _file_of(folder: Path, module_name: str) -> Path:
    parts = module_name.split(".")
    if not all(part.isidentifier() for part in parts):
        raise ConfigurationError(f"{module_name!r} isn't a module's name; write it as in an import")
    place = folder.joinpath(*parts)
    files = place / "__init__.py", place.with_suffix(".py")
    for file in files:
        if file.is_file():
            return file
    raise ConfigurationError(
        f"there is no module {module_name!r} beside the agents file; create {files[1]}"
    )


def _must_be_free(folder: Path, root: str) -> None:
    """Python imports what it has already, or finds first: that must be the module beside the file."""
    try:
        spec = find_spec(root)
    except ValueError:  # a module without a spec, such as __main__
        spec = None
    if not _lies_beside(folder, root, spec):
        other = spec.origin if spec is not None else None
        raise ConfigurationError(
            f"the name {root!r} belongs to another module ({other or 'built in'}); rename this one"
        )


def _line_of(error: BaseException, folder: Path) -> str:
    """Where in the user's own files it went wrong."""
    if isinstance(error, SyntaxError):
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(folder)]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""


def _defined_in(module: ModuleType, kind: type[T]) -> list[T]:
    return [value for value in vars(module).values() if isinstance(value, kind)]
