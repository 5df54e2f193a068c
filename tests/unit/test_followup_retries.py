"""Pauses between retries of a follow-up double up to the longest one."""

import pytest

from app.domain.children.followups import (
    FIRST_POLL_SECONDS,
    FIRST_RETRY_SECONDS,
    MAX_POLL_SECONDS,
    MAX_RETRY_SECONDS,
    MAX_TRIES,
    JobInfo,
    poll_delay,
    retry_delay,
)


def test_the_first_pauses_are_the_shortest() -> None:
    assert retry_delay(1) == FIRST_RETRY_SECONDS
    assert poll_delay(0) == FIRST_POLL_SECONDS


@pytest.mark.parametrize("number", range(5))
def test_pauses_double(number: int) -> None:
    assert retry_delay(number + 2) == 2 * retry_delay(number + 1)
    assert poll_delay(number + 1) == 2 * poll_delay(number)


@pytest.mark.parametrize("number", [7, 20, 21, 22, 1000, 10**6])
def test_no_pause_is_longer_than_the_longest(number: int) -> None:
    assert retry_delay(number) == MAX_RETRY_SECONDS
    assert poll_delay(number) == MAX_POLL_SECONDS


def test_all_retries_together_outlast_a_deployment() -> None:
    assert sum(retry_delay(tries) for tries in range(1, MAX_TRIES)) > 180


def test_a_follow_up_has_no_polls_and_is_not_late_by_default() -> None:
    assert JobInfo() == JobInfo(polls=0, is_late=False)
