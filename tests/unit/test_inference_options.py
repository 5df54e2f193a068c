"""Options of a model: runs override their agent's field by field, and JSON has the set fields."""

from typing import Any

import pytest

from app.domain.inference.options import (
    NO_OPTIONS,
    InferenceOptions,
    ThinkingBudget,
    nearest_effort,
    options_from_json,
    options_to_json,
)
from app.domain.structs import replace

FULL = InferenceOptions(
    upstream_model="big",
    fallback_upstream_models=("middle", "small"),
    temperature=0.0,
    max_tokens=0,
    top_p=0.5,
    reasoning_effort="low",
)
LATER: dict[str, Any] = {
    "upstream_model": "",
    "fallback_upstream_models": (),
    "temperature": 1.0,
    "max_tokens": 7,
    "top_p": 0.0,
    "reasoning_effort": ThinkingBudget(1),
}


@pytest.mark.parametrize("name", InferenceOptions.__struct_fields__)
def test_a_later_option_replaces_an_earlier_one_and_the_others_stay(name: str) -> None:
    later = replace(NO_OPTIONS, **{name: LATER[name]})
    assert FULL.overridden_by(later) == replace(FULL, **{name: LATER[name]})
    assert NO_OPTIONS.overridden_by(later) == later


def test_without_later_options_all_stay() -> None:
    assert FULL.overridden_by(NO_OPTIONS) == FULL
    assert FULL.overridden_by(InferenceOptions()) == FULL


def test_only_what_is_set_is_written() -> None:
    assert options_to_json(NO_OPTIONS) == {}
    assert options_to_json(FULL) == {
        "upstream_model": "big",
        "fallback_upstream_models": ["middle", "small"],
        "temperature": 0.0,
        "max_tokens": 0,
        "top_p": 0.5,
        "reasoning_effort": "low",
    }
    budget = InferenceOptions(reasoning_effort=ThinkingBudget(99))
    assert options_to_json(budget) == {"reasoning_effort": {"budget": 99}}


@pytest.mark.parametrize(
    "options",
    [
        NO_OPTIONS,
        FULL,
        InferenceOptions(**LATER),
        InferenceOptions(fallback_upstream_models=("small",)),
        InferenceOptions(reasoning_effort=ThinkingBudget(0)),
    ],
)
def test_options_can_be_read_back(options: InferenceOptions) -> None:
    assert options_from_json(options_to_json(options)) == options


@pytest.mark.parametrize(
    "tokens, effort",
    [(0, "low"), (2048, "low"), (2049, "medium"), (10_000, "medium"), (10_001, "high")],
)
def test_a_budget_has_a_nearest_effort(tokens: int, effort: str) -> None:
    assert nearest_effort(ThinkingBudget(tokens)) == effort
