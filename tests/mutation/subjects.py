"""Which test files are about a module: they import it, or import a module that does."""

import ast
from functools import cached_property
from pathlib import Path

FAST = ("tests/unit", "tests/conformance")
SLOW = ("tests/integration",)
MAX_SLOW_FILES = 12
# Drives the whole loop in memory, past every point at which a worker can be lost.
OF_THE_LOOP = {"runtime": ["tests/machine/test_every_point.py"]}


class Subjects:
    """The import graph of `app/` and of the tests, read once."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def fast_tests(self, module: Path) -> list[str]:
        """Every fast test, those that import the module first."""
        about = self._about(module, FAST)
        return [*about, *(path for path in self._files(FAST) if path not in about)]

    def slow_tests(self, module: Path) -> list[str]:
        """Tests of the loop, and tests on Postgres that import the module or one of its importers."""
        return [*OF_THE_LOOP.get(module.parts[1], []), *self._about(module, SLOW)[:MAX_SLOW_FILES]]

    def _about(self, module: Path, folders: tuple[str, ...]) -> list[str]:
        name = _dotted(module)
        direct = [path for path in self._files(folders) if name in self._tests[path]]
        importers = {importer for importer, imported in self._app.items() if name in imported}
        indirect = [
            path
            for path in self._files(folders)
            if path not in direct and importers & self._tests[path]
        ]
        return direct + indirect

    def _files(self, folders: tuple[str, ...]) -> list[str]:
        return [path for path in self._tests if path.startswith(folders)]

    @cached_property
    def _tests(self) -> dict[str, set[str]]:
        return {
            str(path.relative_to(self._root)): _imported(path)
            for path in sorted((self._root / "tests").rglob("test_*.py"))
        }

    @cached_property
    def _app(self) -> dict[str, set[str]]:
        return {
            _dotted(path.relative_to(self._root)): _imported(path)
            for path in sorted((self._root / "app").rglob("*.py"))
        }


def _dotted(module: Path) -> str:
    return ".".join(module.with_suffix("").parts).removesuffix(".__init__")


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names
