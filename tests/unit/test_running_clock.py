"""The time in which a process was frozen does not count as an outage of the database."""

from app.workers.liveness.outage_allowance import OutageAllowance
from app.workers.liveness.running_clock import RunningClock
from tests.support.clocks import Clock

INTERVAL = 0.5


def continues(clock: Clock, running: RunningClock, seconds: float) -> None:
    for _ in range(int(seconds / INTERVAL)):
        clock.now += INTERVAL
        running.tick()


def test_time_is_counted_while_the_loop_runs() -> None:
    clock = Clock()
    running = RunningClock(clock, interval=INTERVAL)
    continues(clock, running, 10)
    clock.now += INTERVAL / 2
    assert running.seconds() == 10 + INTERVAL / 2


def test_a_late_tick_counts_fully() -> None:
    clock = Clock()
    running = RunningClock(clock, interval=INTERVAL)
    clock.now += 2 * INTERVAL
    running.tick()
    assert running.seconds() == 2 * INTERVAL


def test_time_in_which_the_process_was_frozen_is_not_counted() -> None:
    clock = Clock()
    running = RunningClock(clock, interval=INTERVAL)
    clock.now += 60
    assert running.seconds() == 2 * INTERVAL, "asked before the first tick"
    running.tick()
    continues(clock, running, 5)
    assert running.seconds() == 2 * INTERVAL + 5


def test_a_frozen_process_gives_other_workers_no_more_time() -> None:
    """Its heartbeat was in flight when it froze, and timed out when it continued."""
    clock = Clock()
    running = RunningClock(clock, interval=INTERVAL)
    allowance = OutageAllowance(running.seconds, remembered=10)
    for _ in range(3):
        clock.now += 12
        allowance.heartbeat_failed()
        running.tick()
        allowance.heartbeat_succeeded()
        continues(clock, running, 1)
    assert allowance.seconds() <= 3 * (2 * INTERVAL + 1)


def test_an_outage_counts_while_the_process_runs() -> None:
    clock = Clock()
    running = RunningClock(clock, interval=INTERVAL)
    allowance = OutageAllowance(running.seconds, remembered=10)
    continues(clock, running, 20)
    allowance.heartbeat_failed()
    assert allowance.seconds() == 20
