"""What an outage adds to the patience with workers that nobody has heard of."""

from app.dispatch.deafness import Deafness
from tests.support.clocks import Clock


def test_as_long_as_all_is_well_nothing_is_added() -> None:
    clock = Clock()
    deafness = Deafness(clock, remembered=10)
    clock.now += 5
    deafness.heard()
    clock.now += 5
    assert deafness.seconds() == 0


def test_an_outage_counts_from_the_last_heartbeat_that_was_written() -> None:
    clock = Clock()
    deafness = Deafness(clock, remembered=10)
    deafness.heard()
    clock.now += 3
    deafness.missed()
    assert deafness.seconds() == 3
    clock.now += 20
    deafness.missed()
    assert deafness.seconds() == 23


def test_whoever_was_silent_meanwhile_gets_the_whole_patience_again() -> None:
    clock = Clock()
    deafness = Deafness(clock, remembered=10)
    clock.now += 30
    deafness.missed()
    clock.now += 1
    deafness.heard()
    for _ in range(10):
        clock.now += 1
        deafness.heard()
        assert deafness.seconds() == 31
    clock.now += 0.1
    assert deafness.seconds() == 0
    deafness.heard()
    assert deafness.seconds() == 0


def test_a_database_that_comes_and_goes_is_one_outage() -> None:
    clock = Clock()
    deafness = Deafness(clock, remembered=10)
    deafness.missed()
    clock.now += 5
    deafness.heard()
    clock.now += 2
    deafness.missed()
    clock.now += 3
    deafness.heard()
    assert deafness.seconds() == 10
