"""Checks all guarantees against a history and the database rows. Pure, so it can be repeated."""

from collections.abc import Iterator

from tests.journeys.chaos.checks_of_children import check_children
from tests.journeys.chaos.checks_of_logs import check_logs
from tests.journeys.chaos.checks_of_rate_limits import check_rate_limits
from tests.journeys.chaos.checks_of_requests import check_requests
from tests.journeys.chaos.checks_of_signals import check_signals
from tests.journeys.chaos.checks_of_streams import check_streams
from tests.journeys.chaos.checks_of_tools import check_tools
from tests.journeys.chaos.history import History
from tests.journeys.chaos.truth import Truth
from tests.journeys.chaos.violations import Violation


def check(history: History, truth: Truth) -> list[Violation]:
    return [
        *check_streams(history.reader_records, truth),
        *check_logs(truth),
        *check_requests(history, truth),
        *check_tools(truth),
        *check_signals(history, truth),
        *check_children(history, truth),
        *check_rate_limits(truth),
        *_check_ends(history, truth),
    ]


def _check_ends(history: History, truth: Truth) -> Iterator[Violation]:
    """Every run is done, and every row is valid."""
    for run in truth.runs:
        if run["status"] != "done":
            yield Violation("a run never ends", f"{dict(run)}")
    if history.settled_in is None:
        yield Violation("not every run finishes", "runs were open after the time-out")
    for rule, rows in truth.broken_rows.items():
        yield Violation(rule, ", ".join(map(str, rows)))
