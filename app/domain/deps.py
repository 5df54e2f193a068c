"""Deps: what the start-up functions of an agents folder opened, for its tools and plugins."""

from collections.abc import Mapping
from typing import Any

from app.domain.errors import HoldfastError


class DepsError(HoldfastError):
    """A start-up function or a tool uses `deps` in a way that can't work."""


class Deps:
    """Resources by name: `deps.pool = …` in a start-up function, `ctx.deps.pool` in a tool.

    Each process that executes runs has one. Once it has started, no name is added or changed.
    """

    __slots__ = ("_by_name", "_is_complete")

    def __init__(self, by_name: Mapping[str, object] | None = None) -> None:
        object.__setattr__(self, "_by_name", dict(by_name or {}))
        object.__setattr__(self, "_is_complete", by_name is not None)

    def __getattr__(self, name: str) -> Any:
        by_name: dict[str, object] = object.__getattribute__(self, "_by_name")
        if name in by_name:
            return by_name[name]
        if name.startswith("__"):
            raise AttributeError(name)
        there_are = ", ".join(by_name) or "none"
        raise DepsError(
            f"there is no resource {name!r}; set it in a function with @startup:"
            f" deps.{name} = … (there are: {there_are})"
        )

    def __setattr__(self, name: str, value: object) -> None:
        by_name: dict[str, object] = object.__getattribute__(self, "_by_name")
        if object.__getattribute__(self, "_is_complete"):
            raise DepsError(f"deps.{name} can only be set in a function with @startup")
        if name in by_name:
            raise DepsError(f"deps.{name} is set already; give one of them another name")
        by_name[name] = value

    def __delattr__(self, name: str) -> None:
        raise DepsError(f"deps.{name} can't be deleted")

    def complete(self) -> None:
        """Refuse changes from now on."""
        object.__setattr__(self, "_is_complete", True)

    def __repr__(self) -> str:
        # Names only: values may hold passwords.
        return f"Deps({', '.join(object.__getattribute__(self, '_by_name'))})"


NO_DEPS = Deps({})
