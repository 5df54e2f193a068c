"""The activities of a run: the newest snapshot of each, with the patches after it applied."""

from typing import Any

import pytest

from app.domain.events.activities import MAX_ACTIVITY_BYTES, Activities, Activity, activities_of
from app.domain.events.json_patch import PatchInvalid, patched


def snapshot(content: Any, of: str = "c1") -> tuple[str, dict[str, Any]]:
    return "activity_snapshot", {"message_id": of, "activity_type": "progress", "content": content}


def delta(*patch: dict[str, Any], of: str = "c1") -> tuple[str, dict[str, Any]]:
    return "activity_delta", {"message_id": of, "activity_type": "progress", "patch": list(patch)}


def test_a_later_snapshot_replaces_an_earlier_one_and_activities_stay_apart() -> None:
    found = activities_of([snapshot(1), snapshot(2, of="c2"), snapshot({"done": 3})])
    assert found == Activities(
        (Activity("c1", "progress", {"done": 3}), Activity("c2", "progress", 2))
    )


def test_patches_are_applied_in_order_and_one_that_does_not_fit_changes_nothing() -> None:
    found = activities_of(
        [
            delta({"op": "add", "path": "/lost", "value": 1}),
            snapshot({"rows": []}),
            delta({"op": "add", "path": "/rows/-", "value": "a"}),
            delta(
                {"op": "add", "path": "/rows/-", "value": "b"}, {"op": "remove", "path": "/none"}
            ),
            delta({"op": "replace", "path": "/rows/0", "value": "c"}),
        ]
    )
    assert found == Activities((Activity("c1", "progress", {"rows": ["c"]}),))


@pytest.mark.parametrize(
    "patch",
    [
        [{"op": "copy", "from": "/copies", "path": "/copies/-"}],
        [{"op": "copy", "from": "", "path": "/copies"}],
    ],
    ids=["each copy twice as large", "each copy one level deeper"],
)
def test_an_activity_that_patches_make_huge_is_left_out(patch: list[dict[str, Any]]) -> None:
    found = activities_of([snapshot({"copies": [1]}), *[delta(*patch)] * 200, snapshot(2, "c2")])
    assert found == Activities((Activity("c2", "progress", 2),), has_more=True)


def test_an_activity_as_large_as_possible_is_shown() -> None:
    text = "x" * (MAX_ACTIVITY_BYTES - 5)
    assert activities_of([snapshot(text)]).shown == (Activity("c1", "progress", text),)
    assert activities_of([snapshot(text + "x")]) == Activities((), has_more=True)


@pytest.mark.parametrize(
    "document, operation, expected",
    [
        ({"a": 1}, {"op": "add", "path": "/b", "value": 2}, {"a": 1, "b": 2}),
        ([1, 3], {"op": "add", "path": "/1", "value": 2}, [1, 2, 3]),
        ([1], {"op": "add", "path": "/1", "value": 2}, [1, 2]),
        ({"a": {"b": 1}}, {"op": "remove", "path": "/a/b"}, {"a": {}}),
        ([1, 2], {"op": "remove", "path": "/0"}, [2]),
        ({"a": 1}, {"op": "replace", "path": "", "value": 7}, 7),
        ({"a": 1}, {"op": "move", "from": "/a", "path": "/b"}, {"b": 1}),
        ({"a": [1]}, {"op": "copy", "from": "/a", "path": "/b"}, {"a": [1], "b": [1]}),
        ({"a": 1}, {"op": "test", "path": "/a", "value": 1}, {"a": 1}),
        ({"a/b": {"~": 1}}, {"op": "replace", "path": "/a~1b/~0", "value": 2}, {"a/b": {"~": 2}}),
    ],
)
def test_each_operation_of_json_patch_is_applied(
    document: Any, operation: dict[str, Any], expected: Any
) -> None:
    before = repr(document)
    assert patched(document, [operation]) == expected
    assert repr(document) == before


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/b"},
        {"op": "replace", "path": "/b", "value": 1},
        {"op": "add", "path": "/l/5", "value": 1},
        {"op": "add", "path": "/l/-1", "value": 1},
        {"op": "add", "path": "/l/x", "value": 1},
        {"op": "add", "path": "b", "value": 1},
        {"op": "add", "path": "/a/b", "value": 1},
        {"op": "test", "path": "/a", "value": 2},
        {"op": "jump", "path": "/a"},
        {"path": "/a"},
        "remove",
    ],
)
def test_an_operation_that_does_not_fit_is_refused(operation: Any) -> None:
    with pytest.raises(PatchInvalid):
        patched({"a": 1, "l": [1]}, [operation])
