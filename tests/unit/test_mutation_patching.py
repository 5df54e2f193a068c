"""Mutation tests: a change is put into the functions that are loaded."""

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from tests.mutation.patching import NotPatchable, patch, replaced_code

SOURCE = """
ONE = 1

def plain(x, y=2):
    return x + y

def listing(x):
    return [each + 1 for each in x]

def decorator(by):
    def decorated(function):
        return lambda x: function(x) + by
    return decorated

@decorator(ONE)
def wrapped(x):
    return x * 5

class A:
    limit = 3
    double, half = (lambda self, x: x * 2), (lambda self, x: x / 2)

    def method(self, x):
        while True:
            return x < 7
"""


def functions_of(names: dict[str, Any]) -> list[FunctionType]:
    """All functions of a module, also those in closures and classes."""
    found = [each for each in names.values() if inspect.isfunction(each)]
    for function in found:
        cells = inspect.getclosurevars(function).nonlocals
        found += [each for each in cells.values() if inspect.isfunction(each)]
    return found + [each for each in vars(names["A"]).values() if inspect.isfunction(each)]


@pytest.mark.parametrize(
    "old, new, call, before, after",
    [
        ("x + y", "x - y", lambda names: names["plain"](5), 7, 3),
        ("each + 1", "each - 1", lambda names: names["listing"]([5]), [6], [4]),
        ("(x) + by", "(x) - by", lambda names: names["wrapped"](2), 11, 9),
        ("x * 5", "x * 6", lambda names: names["wrapped"](2), 11, 13),
        ("x * 2", "x * 3", lambda names: names["A"]().double(2), 4, 6),
        ("x / 2", "x / 3", lambda names: names["A"]().half(12), 6, 4),
        ("x < 7", "x <= 7", lambda names: names["A"]().method(7), False, True),
        ("while True", "while False", lambda names: names["A"]().method(1), True, None),
    ],
)
def test_loaded_functions_get_the_changed_code(
    old: str, new: str, call: Callable[[dict[str, Any]], object], before: object, after: object
) -> None:
    names: dict[str, Any] = {}
    exec(compile(SOURCE, "some.py", "exec"), names)
    assert call(names) == before
    patch(functions_of(names), replaced_code("some.py", SOURCE, SOURCE.replace(old, new)))
    assert call(names) == after


@pytest.mark.parametrize(
    "old, new", [("ONE = 1", "ONE = 2"), ("y=2", "y=3"), ("limit = 3", "limit = 4")]
)
def test_a_change_of_what_the_import_computes_is_refused(old: str, new: str) -> None:
    with pytest.raises(NotPatchable):
        replaced_code("some.py", SOURCE, SOURCE.replace(old, new))


def test_a_change_of_a_function_that_is_not_loaded_is_refused() -> None:
    with pytest.raises(NotPatchable):
        patch([], replaced_code("some.py", SOURCE, SOURCE.replace("x + y", "x - y")))
