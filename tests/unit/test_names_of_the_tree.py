"""Class names are unique, immutable values are Structs, folders stay small, constants say their unit.

Sentences name their subject.
"""

import ast
import re
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


def test_immutable_values_are_structs() -> None:
    """Dataclasses remain where a field isn't shown or compared, or where a value is computed once."""
    needs_dataclass = re.compile(r"\b(repr=False|compare=False|cached_property)")
    found = {
        node.name
        for path in APP.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        for decorator in node.decorator_list
        if "frozen=True" in ast.unparse(decorator)
        if not needs_dataclass.search(ast.unparse(node))
    }
    assert found == {"Slice"}, "a sequence can't be a Struct, others can"


def test_structs_are_immutable() -> None:
    for path in APP.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and "Struct" in map(ast.unparse, node.bases):
                assert "frozen=True" in map(ast.unparse, node.keywords), node.name


def test_a_folder_has_at_most_fifteen_modules() -> None:
    modules = (path for path in APP.rglob("*.py") if path.name != "__init__.py")
    counts = Counter(str(path.parent.relative_to(APP)) for path in modules)
    assert {folder: count for folder, count in counts.items() if count > MAX_MODULES} == {}


def _is_number(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value):
            return isinstance(value, int | float)
        case ast.BinOp(left, _, right):
            return _is_number(left) and _is_number(right)
        case _:
            return False


def test_a_constant_says_maximum_and_unit_in_the_same_words_everywhere() -> None:
    """A maximum is `MAX_…`. A time-out, interval or delay ends with its unit."""
    maximum = re.compile(r"(^|_)(MOST|LARGEST|LONGEST)_|_LIMIT$")
    duration = re.compile(r"(^|_)(TIMEOUT|INTERVAL|DELAY|PATIENCE|SILENCE|WITHIN|GRACE|PAUSE)$")
    found = {
        f"{path.relative_to(APP)}: {target.id}"
        for path in APP.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and _is_number(node.value)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.isupper()
        if maximum.search(target.id) or duration.search(target.id)
    }
    assert found == set()


def test_sentences_name_their_subject() -> None:
    """Words such as nobody hide which process, row, message or person is meant."""
    words = re.compile(r"\b(nobody|somebody|anybody|whoever|whatever|whichever)\b", re.IGNORECASE)
    found = {
        f"{path.relative_to(APP)}:{number}"
        for path in APP.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if words.search(line)
    }
    assert found == set()
