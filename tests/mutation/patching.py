"""Puts the code of a changed module into the functions that are loaded, so that nothing is imported again."""

import gc
from collections.abc import Iterator, Mapping
from inspect import CO_NEWLOCALS
from types import CodeType, FunctionType

Key = tuple[str, str, int, bytes]


class NotPatchable(Exception):
    """The change is in code that runs while the module is imported."""


def replaced_code(path: str, before: str, after: str) -> dict[Key, CodeType]:
    """The new code of each function that a change concerns, by what identifies its old code."""
    found: dict[Key, CodeType] = {}
    old = compile(before, path, "exec", dont_inherit=True)
    new = compile(after, path, "exec", dont_inherit=True)
    for old_code, new_code in _changed(old, new):
        if not old_code.co_flags & CO_NEWLOCALS:
            raise NotPatchable(path)
        found[key_of(old_code)] = new_code
    return found


def _changed(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Pairs of code whose instructions differ, and the functions around them."""
    nested, changed_nested = _nested(old), _nested(new)
    differs = _own(old) != _own(new) or len(nested) != len(changed_nested)
    if len(nested) == len(changed_nested):
        for one, other in zip(nested, changed_nested, strict=True):
            inner = list(_changed(one, other))
            yield from inner
            differs = differs or (bool(inner) and bool(old.co_flags & CO_NEWLOCALS))
    if differs:
        yield old, new


def _nested(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _own(code: CodeType) -> tuple[object, ...]:
    constants = [repr(each) for each in code.co_consts if not isinstance(each, CodeType)]
    return (code.co_code, constants, code.co_names, code.co_varnames, code.co_exceptiontable)


def key_of(code: CodeType) -> Key:
    """Identifies code by its place: lambdas on one line have different columns in the line table."""
    return (code.co_filename, code.co_qualname, code.co_firstlineno, code.co_linetable)


def loaded_functions(prefix: str) -> dict[str, list[FunctionType]]:
    """By file: every function whose code is below a folder."""
    found: dict[str, list[FunctionType]] = {}
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename.startswith(prefix):
            found.setdefault(each.__code__.co_filename, []).append(each)
    return found


def patch(functions: list[FunctionType], codes: Mapping[Key, CodeType]) -> None:
    """Give each loaded function its new code.

    Raises `NotPatchable` if there is none that has it, and `ValueError` for other free variables.
    """
    patched = 0
    for function in functions:
        new = codes.get(key_of(function.__code__))
        if new is not None:
            function.__code__ = new
            patched += 1
    if codes and not patched:
        raise NotPatchable
