"""Measures work relative to a reference loop in the same thread, so that results hold on any machine."""

import time
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")

_STEPS = 400_000
"""Iterations of the reference loop."""
_LOOPS_IN_A_PAUSE = 10
"""The number of reference loops in about 100 ms on the machine of the measured limits."""
_TRIES = 3


def within_a_pause(work: Callable[[], R]) -> R:
    """The result of `work`; fails when it takes longer than the event loop may be blocked."""
    shares = []
    for _ in range(_TRIES):
        limit = _LOOPS_IN_A_PAUSE * min(_seconds(_reference_loop)[0] for _ in range(2))
        seconds, result = _seconds(work)
        if seconds < limit:
            return result
        shares.append(seconds / limit)
    raise AssertionError(f"takes {min(shares):.1f} times as long as the loop may be held up")


def _seconds(work: Callable[[], R]) -> tuple[float, R]:
    """Processor time of this thread, so that other processes don't count."""
    began = time.thread_time()
    result = work()
    return time.thread_time() - began, result


def _reference_loop() -> int:
    total = 0
    for step in range(_STEPS):
        total += step & 7
    return total
