"""JSON Patch (RFC 6902): what a client does with an `activity_delta`."""

from collections.abc import Callable
from typing import Any


class PatchInvalid(ValueError):
    """The patch isn't one, or doesn't fit the document."""


def patched(document: Any, operations: list[Any]) -> Any:
    """The document after all operations. The given document doesn't change."""
    for operation in operations:
        document = applied(document, operation)
    return document


def applied(document: Any, operation: Any) -> Any:
    """The document after one operation.

    It shares with the given document what didn't change: only the containers of the path are copied.
    """
    try:
        return _applied(document, operation)
    except (KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
        raise PatchInvalid(f"{operation!r:.200} doesn't fit") from error


def _applied(document: Any, operation: Any) -> Any:
    path = _keys(operation["path"])
    match operation["op"]:
        case "add":
            return _added(document, path, operation["value"])
        case "remove":
            return _removed(document, path)
        case "replace":
            return _added(_removed(document, path), path, operation["value"])
        case "move":
            origin = _keys(operation["from"])
            return _added(_removed(document, origin), path, _at(document, origin))
        case "copy":
            return _added(document, path, _at(document, _keys(operation["from"])))
        case "test" if _at(document, path) == operation["value"]:
            return document
        case _:
            raise PatchInvalid("unknown operation, or a test that fails")


def _keys(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise PatchInvalid("a pointer begins with /")
    return [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]]


def _at(document: Any, keys: list[str]) -> Any:
    for key in keys:
        document = document[_place(document, key)]
    return document


def _place(container: Any, key: str) -> Any:
    """The index of a list's item, or the key of an object's property."""
    if not isinstance(container, list):
        return key
    index = int(key)
    if not 0 <= index < len(container):
        raise IndexError(key)
    return index


def _added(document: Any, keys: list[str], value: Any) -> Any:
    if not keys:
        return value

    def add(parent: Any, key: str) -> None:
        if not isinstance(parent, list):
            parent[key] = value
        elif key == "-" or int(key) == len(parent):
            parent.append(value)
        else:
            parent.insert(_place(parent, key), value)

    return _with_change(document, keys, add)


def _removed(document: Any, keys: list[str]) -> Any:
    if not keys:
        return None

    def remove(parent: Any, key: str) -> None:
        del parent[_place(parent, key)]

    return _with_change(document, keys, remove)


def _with_change(document: Any, keys: list[str], change: Callable[[Any, str], None]) -> Any:
    """The document with a changed copy of the container of the last key."""
    *path, last = keys
    containers = [document]
    for key in path:
        containers.append(_at(containers[-1], [key]))
    result = containers.pop().copy() if isinstance(containers[-1], dict | list) else None
    change(result, last)
    for container, key in zip(reversed(containers), reversed(path), strict=True):
        copied = container.copy()
        copied[_place(container, key)] = result
        result = copied
    return result
