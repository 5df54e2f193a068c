"""Pauses between tries of a follow-up: they double from the first one and stop at the longest."""

import pytest

from app.domain.errands import (
    FIRST_LOOK,
    FIRST_PAUSE,
    LATEST_LOOK,
    LONGEST_PAUSE,
    MOST_TRIES,
    Asked,
    look_after,
    pause_after,
)


def test_the_first_pauses_are_the_shortest() -> None:
    assert pause_after(1) == FIRST_PAUSE
    assert look_after(0) == FIRST_LOOK


@pytest.mark.parametrize("number", range(5))
def test_pauses_double(number: int) -> None:
    assert pause_after(number + 2) == 2 * pause_after(number + 1)
    assert look_after(number + 1) == 2 * look_after(number)


@pytest.mark.parametrize("number", [7, 20, 21, 22, 1000, 10**6])
def test_no_pause_is_longer_than_the_longest(number: int) -> None:
    assert pause_after(number) == LONGEST_PAUSE
    assert look_after(number) == LATEST_LOOK


def test_all_tries_together_outlast_a_deployment() -> None:
    assert sum(pause_after(tries) for tries in range(1, MOST_TRIES)) > 180


def test_a_follow_up_is_new_and_in_time_unless_it_says_otherwise() -> None:
    assert Asked() == Asked(looks=0, is_late=False)
