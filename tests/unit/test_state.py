"""State keys, batches and scopes: what a commit does, what it refuses, and what survives a round trip."""

from typing import Any

import pytest

from app.domain.errors import StateError
from app.runtime.state import (
    Change,
    ChangeBatch,
    MergeConflict,
    MergeStrategy,
    StateKey,
    StateScope,
    StateStore,
    UpdateRejected,
    conflict_between,
)


def _add(total: int, more: int) -> int:
    if more < 0:
        raise UpdateRejected("only upwards")
    return total + more


TOTAL: StateKey[int, int] = StateKey("total", lambda: 0, _add, merge=MergeStrategy.COMMUTATIVE)
NAME: StateKey[str, str] = StateKey("name", str)
CART: StateKey[list[str], list[str]] = StateKey("cart", list, scope=StateScope.THREAD)
SCRATCH: StateKey[str, str] = StateKey("scratch", str, persistent=False)
SEEN: StateKey[set[str], str] = StateKey(
    "seen", set, lambda seen, one: seen | {one}, encode=sorted, decode=set
)


ALL: tuple[StateKey[Any, Any], ...] = (TOTAL, NAME, CART, SCRATCH, SEEN)


def store(*keys: StateKey[Any, Any]) -> StateStore:
    return StateStore(keys or ALL)


def batch(*changes: tuple[StateKey[Any, Any], Any], base: int | None = None) -> ChangeBatch:
    return ChangeBatch([Change(key, update) for key, update in changes], base)


def test_the_revision_starts_at_0() -> None:
    assert store().snapshot.revision == 0


def test_a_commit_is_one_revision_however_much_it_changes() -> None:
    state = store()
    state.commit(batch((TOTAL, 1), (TOTAL, 2), (NAME, "ann")))
    assert (state.snapshot.revision, state.snapshot.get(TOTAL)) == (1, 3)
    state.commit(batch((TOTAL, 1)))
    assert state.snapshot.revision == 2


def test_an_empty_commit_changes_nothing() -> None:
    state = store()
    assert state.commit(ChangeBatch()).snapshot.revision == 0


def test_a_key_begins_with_its_default() -> None:
    assert store().snapshot.get(CART) == []


def test_a_snapshot_never_changes() -> None:
    state = store()
    before = state.snapshot
    state.commit(batch((NAME, "ann")))
    assert (before.get(NAME), state.snapshot.get(NAME)) == ("", "ann")


def test_a_batch_of_an_old_revision_conflicts() -> None:
    state = store()
    state.commit(batch((NAME, "ann")))
    with pytest.raises(StateError, match="revision 1, not 0"):
        state.commit(batch((NAME, "bob"), base=0))
    assert state.snapshot.get(NAME) == "ann"


def test_an_unknown_key_is_an_error() -> None:
    state = store(TOTAL)
    with pytest.raises(StateError, match="'name' isn't registered"):
        state.commit(batch((TOTAL, 1), (NAME, "ann")))
    assert state.snapshot.get(TOTAL) == 0


def test_a_rejected_update_is_reported_and_the_others_are_applied() -> None:
    state = store()
    committed = state.commit(batch((TOTAL, -1), (NAME, "ann")))
    assert [(each.change.key.name, each.reason) for each in committed.refused] == [
        ("total", "only upwards")
    ]
    assert (state.snapshot.get(TOTAL), state.snapshot.get(NAME)) == (0, "ann")


def test_the_same_key_may_be_registered_twice_and_another_of_its_name_may_not() -> None:
    state = store()
    state.register([TOTAL])
    with pytest.raises(StateError, match="two different state keys"):
        state.register([StateKey("total", lambda: 1)])


# --- scopes and persistence ----------------------------------------------------------------------


def test_export_skips_keys_that_are_not_persistent() -> None:
    state = store()
    state.commit(batch((SCRATCH, "x"), (NAME, "ann"), (CART, ["tea"])))
    assert state.exported(StateScope.RUN) == {"name": "ann"}
    assert state.exported(StateScope.THREAD) == {"cart": ["tea"]}


def test_an_unset_value_is_not_exported() -> None:
    assert store().exported(StateScope.RUN) == {}


def test_an_export_can_be_restored() -> None:
    first, second = store(), store()
    first.commit(batch((SEEN, "b"), (SEEN, "a"), (TOTAL, 4), (CART, ["tea"])))
    for scope in StateScope:
        second.restore(scope, first.exported(scope))
    assert second.snapshot.get(SEEN) == {"a", "b"}
    assert (second.snapshot.get(TOTAL), second.snapshot.get(CART)) == (4, ["tea"])


def test_unknown_keys_survive_a_round_trip() -> None:
    state = store(TOTAL)
    state.restore(StateScope.RUN, {"total": 1, "newer": {"a": [1]}})
    state.commit(batch((TOTAL, 1)))
    assert state.exported(StateScope.RUN) == {"total": 2, "newer": {"a": [1]}}


def test_a_kept_value_is_decoded_once_its_key_is_registered() -> None:
    state = store(TOTAL)
    state.restore(StateScope.RUN, {"seen": ["a"]})
    state.register([SEEN])
    state.commit(batch((SEEN, "b")))
    assert state.exported(StateScope.RUN) == {"seen": ["a", "b"]}


def test_restoring_one_scope_does_not_change_the_other() -> None:
    state = store()
    state.commit(batch((CART, ["tea"]), (NAME, "ann")))
    state.restore(StateScope.RUN, {})
    assert (state.snapshot.get(NAME), state.snapshot.get(CART)) == ("", ["tea"])


def test_an_undecodable_value_is_an_error_and_changes_nothing() -> None:
    state = store()
    state.commit(batch((NAME, "ann")))
    with pytest.raises(StateError, match="'seen' can't be read"):
        state.restore(StateScope.RUN, {"seen": 7})
    assert state.snapshot.get(NAME) == "ann"


# --- side by side --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batches", "conflict"),
    [
        ([], None),
        ([batch((NAME, "a"))], None),
        ([batch((NAME, "a")), batch()], None),
        ([batch((NAME, "a"), (NAME, "b"))], None),
        ([batch((NAME, "a")), batch((CART, []))], None),
        ([batch((TOTAL, 1)), batch((TOTAL, 2))], None),
        ([batch((NAME, "a")), batch((TOTAL, 1)), batch((NAME, "b"))], MergeConflict("name", 0, 2)),
        ([batch((NAME, "a"), (TOTAL, 1)), batch((TOTAL, 1), (NAME, "b"))], MergeConflict("name", 0, 1)),
    ],
)  # fmt: skip
def test_only_exclusive_keys_conflict(
    batches: list[ChangeBatch], conflict: MergeConflict | None
) -> None:
    assert conflict_between(batches) == conflict
