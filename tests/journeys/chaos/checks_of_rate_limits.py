"""Waits for a rate limit: each has an end time, and no run resumes before that."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tests.journeys.chaos.truth import Row, Truth
from tests.journeys.chaos.violations import Violation

_REASON = "rate_limit"


def rate_limit_waits(truth: Truth) -> Sequence[Row]:
    return [one for one in truth.activations if one["reason"] == _REASON]


def check_rate_limits(truth: Truth) -> Iterator[Violation]:
    cancelled = {run["id"] for run in truth.runs if run["is_cancel_requested"]}
    of_run: defaultdict[str, list[Row]] = defaultdict(list)
    for one in truth.activations:
        of_run[one["run_id"]].append(one)
    for run_id, activations in of_run.items():
        for before, after in pairwise(activations):
            if before["reason"] == _REASON:
                yield from _check_wait(run_id, before, after, is_cancelled=run_id in cancelled)


def _check_wait(run_id: str, wait: Row, after: Row, *, is_cancelled: bool) -> Iterator[Violation]:
    """Only a cancel may end a wait early."""
    if wait["until"] is None:
        yield Violation("a rate limit without an end", f"run {run_id}: {wait}")
    elif after["ts"] < wait["until"] and not is_cancelled:
        yield Violation("a run resumes before its time", f"run {run_id}: {wait}, then {after}")
    if wait["tickets"]:
        yield Violation("a rate limit wait has tickets", f"run {run_id}: {wait}")
