"""Inputs that wait: a new order moves only those that it names, and runs don't mix."""

import pytest

from app.domain.ids import InputId, RunId, ThreadId
from app.domain.threads.inputs import Input, InputStatus, in_new_order, runs_in_order
from app.domain.threads.messages import Role
from tests.support.logs import message
from tests.support.records import AT


def waiting(*names: str) -> list[Input]:
    """Inputs with these ids; the first letter is the run."""
    return [
        Input(
            id=InputId(name),
            thread_id=ThreadId("thread"),
            run_id=RunId(name[0]),
            position=position,
            message=message(name, Role.USER),
            status=InputStatus.PENDING,
            revision=1,
            created_at=AT,
            consumed_seq=None,
        )
        for position, name in enumerate(names)
    ]


@pytest.mark.parametrize(
    "named, order",
    [
        ([], ["a1", "a2", "a3", "a4"]),
        (["a3", "a1"], ["a3", "a2", "a1", "a4"]),
        (["a4", "a3", "a2", "a1"], ["a4", "a3", "a2", "a1"]),
        (["a2"], ["a1", "a2", "a3", "a4"]),
    ],
)
def test_named_inputs_share_the_places_that_they_had(named: list[str], order: list[str]) -> None:
    inputs = waiting("a1", "a2", "a3", "a4")
    moved = in_new_order(inputs, [InputId(each) for each in named])
    assert [each.id for each in moved] == order


@pytest.mark.parametrize(
    "names, runs",
    [
        ([], []),
        (["a1", "a2"], ["a"]),
        (["b1", "a1", "a2"], ["b", "a"]),
        (["a1", "b1", "a2"], None),
        (["a1", "b1", "b2", "a2", "c1"], None),
    ],
)
def test_no_run_reads_between_the_inputs_of_another(
    names: list[str], runs: list[str] | None
) -> None:
    assert runs_in_order(waiting(*names)) == runs


def test_an_input_stands_at_the_first_place_unless_it_says_otherwise() -> None:
    assert waiting("a1")[0].place == 0
