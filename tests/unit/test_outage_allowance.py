"""An outage of the database lengthens the heartbeat time-out of other workers."""

from app.workers.liveness.outage_allowance import OutageAllowance
from tests.support.clocks import Clock


def test_without_an_outage_nothing_is_added() -> None:
    clock = Clock()
    outage_allowance = OutageAllowance(clock, remembered=10)
    clock.now += 5
    outage_allowance.heartbeat_succeeded()
    clock.now += 5
    assert outage_allowance.seconds() == 0


def test_an_outage_counts_from_the_last_heartbeat_that_was_written() -> None:
    clock = Clock()
    outage_allowance = OutageAllowance(clock, remembered=10)
    outage_allowance.heartbeat_succeeded()
    clock.now += 3
    outage_allowance.heartbeat_failed()
    assert outage_allowance.seconds() == 3
    clock.now += 20
    outage_allowance.heartbeat_failed()
    assert outage_allowance.seconds() == 23


def test_after_an_outage_each_worker_gets_the_full_time_out_again() -> None:
    clock = Clock()
    outage_allowance = OutageAllowance(clock, remembered=10)
    clock.now += 30
    outage_allowance.heartbeat_failed()
    clock.now += 1
    outage_allowance.heartbeat_succeeded()
    for _ in range(10):
        clock.now += 1
        outage_allowance.heartbeat_succeeded()
        assert outage_allowance.seconds() == 31
    clock.now += 0.1
    assert outage_allowance.seconds() == 0
    outage_allowance.heartbeat_succeeded()
    assert outage_allowance.seconds() == 0


def test_short_recoveries_are_part_of_the_same_outage() -> None:
    clock = Clock()
    outage_allowance = OutageAllowance(clock, remembered=10)
    outage_allowance.heartbeat_failed()
    clock.now += 5
    outage_allowance.heartbeat_succeeded()
    clock.now += 2
    outage_allowance.heartbeat_failed()
    clock.now += 3
    outage_allowance.heartbeat_succeeded()
    assert outage_allowance.seconds() == 10
