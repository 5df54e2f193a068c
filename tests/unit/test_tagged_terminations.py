"""Terminations as other runtimes write them: what fits comes back, what doesn't is left out openly."""

from typing import Any

import pytest

from app.domain.runs.tagged_terminations import from_done_reason, from_tagged, tagged
from app.domain.runs.terminations import (
    BehaviorRequested,
    Blocked,
    Cancelled,
    Failed,
    NaturalEnd,
    Stopped,
    Termination,
    status_reason,
    termination_from_json,
    termination_to_json,
)

SHAPES: list[tuple[Termination, dict[str, Any]]] = [
    (NaturalEnd(), {"type": "natural_end"}),
    (BehaviorRequested(), {"type": "behavior_requested"}),
    (Stopped("max_rounds"), {"type": "stopped", "value": {"code": "max_rounds"}}),
    (Stopped("t", "why"), {"type": "stopped", "value": {"code": "t", "detail": "why"}}),
    (Cancelled(), {"type": "cancelled"}),
    (Blocked("no"), {"type": "blocked", "value": "no"}),
    (Failed("error", "oh"), {"type": "error", "value": "oh"}),
]


@pytest.mark.parametrize(("termination", "shape"), SHAPES)
def test_what_fits_the_shape_comes_back(termination: Termination, shape: dict[str, Any]) -> None:
    assert tagged(termination) == shape
    assert from_tagged(shape) == termination


@pytest.mark.parametrize(
    ("termination", "back"),
    [(Cancelled("by ann"), Cancelled()), (Failed("timeout", "late"), Failed("error", "late"))],
)
def test_what_has_no_room_is_left_out(termination: Termination, back: Termination) -> None:
    assert from_tagged(tagged(termination)) == back


def test_an_older_name_is_read() -> None:
    assert from_tagged({"type": "plugin_requested"}) == BehaviorRequested()


def test_an_unknown_kind_breaks_no_reader() -> None:
    assert from_tagged({"type": "evaporated", "value": 7}) == Failed(
        "unknown_termination", "an end of the kind 'evaporated'"
    )


@pytest.mark.parametrize(
    "termination",
    [*(termination for termination, _ in SHAPES), Cancelled("why"), Failed("timeout", "late")],
)
def test_our_own_shape_loses_nothing(termination: Termination) -> None:
    assert termination_from_json(termination_to_json(termination)) == termination


@pytest.mark.parametrize(
    ("reason", "termination"),
    [
        ("natural", NaturalEnd()),
        ("behavior_requested", BehaviorRequested()),
        ("cancelled", Cancelled()),
        ("blocked:no", Blocked("no")),
        ("blocked:blocked:no", Blocked("no")),
        ("stopped:max_rounds", Stopped("max_rounds")),
        ("error:oh: dear", Failed("error", "oh: dear")),
        ("error", Failed("error", "error")),
        ("something else", Failed("error", "something else")),
    ],
)
def test_a_one_line_reason_is_understood(reason: str, termination: Termination) -> None:
    assert from_done_reason(reason) == termination


@pytest.mark.parametrize(
    "termination", [NaturalEnd(), BehaviorRequested(), Cancelled(), Blocked("no"), Stopped("x")]
)
def test_a_reason_that_we_give_is_understood(termination: Termination) -> None:
    assert from_done_reason(status_reason(termination)) == termination
