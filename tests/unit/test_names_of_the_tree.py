"""A class name means one thing, and a folder stays small enough to be searched by eye."""

import ast
from collections import Counter, defaultdict
from pathlib import Path

APP = Path(__file__).parents[2] / "app"
MAX_MODULES = 15


def _is_protocol(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)


def test_a_class_name_is_defined_once() -> None:
    """A protocol may share its name with one implementation."""
    found: defaultdict[str, list[bool]] = defaultdict(list)
    for path in APP.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(_is_protocol(node))
    twice = {name for name, kinds in found.items() if len(kinds) > 1}
    assert {name for name in twice if sorted(found[name]) != [False, True]} == set()


def test_a_folder_has_at_most_fifteen_modules() -> None:
    modules = (path for path in APP.rglob("*.py") if path.name != "__init__.py")
    counts = Counter(str(path.parent.relative_to(APP)) for path in modules)
    assert {folder: count for folder, count in counts.items() if count > MAX_MODULES} == {}
