"""A client's schema can't make a validator work without end; what people write is let pass."""

import time
from typing import Any

import pytest

from app.tools.frontend import problem_of_parameters


def doubling(times: int, keyword: str = "allOf") -> dict[str, Any]:
    """Each definition refers to the one before it twice."""
    definitions: dict[str, Any] = {"a0": {"type": "object"}}
    for n in range(1, times + 1):
        definitions[f"a{n}"] = {keyword: [{"$ref": f"#/$defs/a{n - 1}"}] * 2}
    return {"type": "object", "$defs": definitions, "$ref": f"#/$defs/a{times}"}


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
@pytest.mark.parametrize("times", [20, 45])
def test_what_doubles_again_and_again_is_refused_at_once(keyword: str, times: int) -> None:
    began = time.perf_counter()
    problem = problem_of_parameters(doubling(times, keyword))
    assert problem is not None
    assert "too many times" in problem
    assert time.perf_counter() - began < 1


def test_a_part_that_nothing_leads_to_at_first_is_looked_at_too() -> None:
    within = doubling(45)
    parameters = {"properties": {"a": {"$ref": within.pop("$ref")}}, "$defs": within["$defs"]}
    assert "too many times" in (problem_of_parameters(parameters) or "")


def test_a_chain_without_an_end_in_sight_is_refused() -> None:
    definitions: dict[str, Any] = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(5000)}
    definitions["a5000"] = {"type": "object"}
    assert problem_of_parameters({"$defs": definitions, "$ref": "#/$defs/a0"}) is not None


@pytest.mark.parametrize(
    "parameters, problem",
    [
        ({"$defs": {"a": {"$anchor": "it"}}, "$ref": "#it"}, "own parts only"),
        ({"$defs": {"a": {"$id": "it", "type": "object"}}}, '"$id" in one of its parts'),
    ],
)
def test_references_that_are_hard_to_follow_are_refused(
    parameters: dict[str, Any], problem: str
) -> None:
    assert problem in (problem_of_parameters(parameters) or "")


TREE = {
    "type": "object",
    "properties": {
        "left": {"$ref": "#"},
        "right": {"$ref": "#"},
        "value": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#"}}]},
    },
}
SHAPES = {
    "type": "object",
    "properties": {"shape": {"$ref": "#/$defs/Shape"}},
    "$defs": {
        "Shape": {"oneOf": [{"$ref": f"#/$defs/S{n}"} for n in range(50)]},
        **{
            f"S{n}": {
                "type": "object",
                "properties": {"kind": {"const": n}, "inner": {"$ref": "#/$defs/Shape"}},
            }
            for n in range(50)
        },
    },
}


@pytest.mark.parametrize("parameters", [{}, TREE, SHAPES, doubling(5)], ids=str)
def test_what_people_write_is_let_pass(parameters: dict[str, Any]) -> None:
    assert problem_of_parameters(parameters) is None
