"""State: values that plugins and tools keep between steps, in named keys with reducers.

A commit applies a whole batch or none of it, and makes the next revision. Values of unknown keys are kept
unchanged, because another agent or version may use them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from msgspec import Struct

from app.domain.errors import StateError
from app.domain.json_values import Json, JsonObject

V = TypeVar("V")
U = TypeVar("U")


class StateScope(StrEnum):
    """How long a value is kept: with its run or with its thread."""

    RUN = "run"
    THREAD = "thread"


class MergeStrategy(StrEnum):
    """Whether two batches of the same revision may change the same key."""

    EXCLUSIVE = "exclusive"
    COMMUTATIVE = "commutative"


class UpdateRejected(Exception):
    """Raised by a reducer that refuses an update. The rest of the batch is applied."""


def _replace(_: Any, update: Any) -> Any:
    return update


def _unchanged(value: Any) -> Any:
    return value


class StateKey(Struct, Generic[V, U], frozen=True):
    """One value of the state. `apply` makes the next value from the last one and an update.

    `default` makes the value before the first update. `encode` and `decode` convert values that aren't
    JSON.
    """

    name: str
    default: Callable[[], V]
    apply: Callable[[V, U], V] = _replace
    scope: StateScope = StateScope.RUN
    merge: MergeStrategy = MergeStrategy.EXCLUSIVE
    persistent: bool = True
    encode: Callable[[V], Json] = _unchanged
    decode: Callable[[Any], V] = _unchanged


class Change(Struct, frozen=True):
    """An update of one key."""

    key: StateKey[Any, Any]
    update: Any


class StateView(Struct, frozen=True):
    """The immutable state of one revision."""

    revision: int = 0
    values: Mapping[str, Any] = MappingProxyType({})

    def get(self, key: StateKey[V, Any]) -> V:
        return self.values[key.name] if key.name in self.values else key.default()


class ChangeBatch(Struct, frozen=True):
    """Changes that are committed together. With a base revision, only on exactly that one."""

    changes: Sequence[Change] = ()
    base_revision: int | None = None

    @property
    def exclusive_keys(self) -> frozenset[str]:
        return frozenset(
            change.key.name
            for change in self.changes
            if change.key.merge is MergeStrategy.EXCLUSIVE
        )


class RefusedChange(Struct, frozen=True):
    """An update that a reducer refused."""

    change: Change
    reason: str


class Committed(Struct, frozen=True):
    snapshot: StateView
    refused: tuple[RefusedChange, ...] = ()


class MergeConflict(Struct, frozen=True):
    """Two batches of the same revision that change the same exclusive key, by their indexes."""

    key: str
    first: int
    second: int


def conflict_between(batches: Sequence[ChangeBatch]) -> MergeConflict | None:
    """The first pair of batches that share an exclusive key."""
    owner: dict[str, int] = {}
    for index, batch in enumerate(batches):
        for key in sorted(batch.exclusive_keys):
            if key in owner:
                return MergeConflict(key, owner[key], index)
        owner |= {key: index for key in batch.exclusive_keys}
    return None


class StateStore:
    """The state of one run and its thread."""

    def __init__(self, keys: Iterable[StateKey[Any, Any]] = (), *, revision: int = 0) -> None:
        self._keys: dict[str, StateKey[Any, Any]] = {}
        self._unknown: dict[StateScope, dict[str, Any]] = {scope: {} for scope in StateScope}
        self.snapshot = StateView(revision)
        self.register(keys)

    def register(self, keys: Iterable[StateKey[Any, Any]]) -> None:
        """Register keys, and decode their stored values. Registering the same key again does nothing."""
        for key in keys:
            known = self._keys.get(key.name)
            if known is not None and known != key:
                raise StateError(f"two different state keys are called {key.name!r}")
            self._keys[key.name] = key
            if key.name in self._unknown[key.scope]:
                self._set(key.name, _decoded(key, self._unknown[key.scope].pop(key.name)))

    def key(self, name: str) -> StateKey[Any, Any] | None:
        """The registered key of that name, if there is one."""
        return self._keys.get(name)

    def checked(self, change: Change) -> Change:
        """The change, if its key is registered; else raise `StateError`."""
        if self._keys.get(change.key.name) != change.key:
            raise StateError(f"the state key {change.key.name!r} isn't registered")
        return change

    def commit(self, batch: ChangeBatch) -> Committed:
        """Apply a batch. If a key isn't registered or the base revision is old, raise and change nothing."""
        if not batch.changes:
            return Committed(self.snapshot)
        if batch.base_revision not in (None, self.snapshot.revision):
            raise StateError(
                f"the state is at revision {self.snapshot.revision}, not {batch.base_revision}"
            )
        for change in batch.changes:
            self.checked(change)
        values, refused = dict(self.snapshot.values), []
        for change in batch.changes:
            key = change.key
            before = values[key.name] if key.name in values else key.default()
            try:
                values[key.name] = key.apply(before, change.update)
            except UpdateRejected as error:
                refused.append(RefusedChange(change, str(error)))
        self._set_next(values)
        return Committed(self.snapshot, tuple(refused))

    def touch(self) -> None:
        """Make the next revision without changes."""
        self._set_next(dict(self.snapshot.values))

    def exported(self, scope: StateScope) -> dict[str, Json]:
        """The persistent values of a scope as JSON, with the stored values of unknown keys."""
        return {
            **self._unknown[scope],
            **{
                name: _encoded(key, self.snapshot.values[name])
                for name, key in self._keys.items()
                if key.scope is scope and key.persistent and name in self.snapshot.values
            },
        }

    def restore(self, scope: StateScope, extensions: JsonObject) -> None:
        """Replace the values of a scope by exported ones. The revision stays."""
        values = {
            name: value
            for name, value in self.snapshot.values.items()
            if self._keys[name].scope is not scope
        }
        known = {
            name: self._keys[name]
            for name in extensions
            if name in self._keys and self._keys[name].scope is scope
        }
        values |= {name: _decoded(key, extensions[name]) for name, key in known.items()}
        self._unknown[scope] = {name: raw for name, raw in extensions.items() if name not in known}
        self.snapshot = StateView(self.snapshot.revision, MappingProxyType(values))

    def _set(self, name: str, value: Any) -> None:
        values = {**self.snapshot.values, name: value}
        self.snapshot = StateView(self.snapshot.revision, MappingProxyType(values))

    def _set_next(self, values: dict[str, Any]) -> None:
        self.snapshot = StateView(self.snapshot.revision + 1, MappingProxyType(values))


def _encoded(key: StateKey[Any, Any], value: Any) -> Json:
    try:
        return key.encode(value)
    except Exception as error:  # a plugin's code
        raise StateError(
            f"the value of state key {key.name!r} can't be written: {error}"
        ) from error


def _decoded(key: StateKey[Any, Any], raw: Any) -> Any:
    try:
        return key.decode(raw)
    except Exception as error:  # a plugin's code
        raise StateError(
            f"what was stored under state key {key.name!r} can't be read: {error}"
        ) from error
