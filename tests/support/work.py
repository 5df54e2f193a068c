"""How much work something is, beside a loop of known length in the same thread: true on any machine."""

import time
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")

STEPS_OF_A_PAUSE = 4_000_000
"""Steps of the reference loop: about 100 ms on the machine that the promises were measured on."""
_TRIES = 3


def share_of_a_pause(work: Callable[[], object]) -> float:
    """The processor time of `work`, as a share of the longest pause that the server's loop may make."""
    return min(_seconds(work) / _seconds(_reference_loop) for _ in range(_TRIES))


def within_a_pause(work: Callable[[], R]) -> R:
    """What `work` returns; fails when it would hold the server's loop up."""
    results: list[R] = []
    share = share_of_a_pause(lambda: results.append(work()))
    assert share < 1, f"takes {share:.1f} times as long as the loop may be held up"
    return results[0]


def _seconds(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def _reference_loop() -> int:
    total = 0
    for step in range(STEPS_OF_A_PAUSE):
        total += step & 7
    return total
