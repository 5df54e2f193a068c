"""The log of each thread: in order, one run at a time, ends equal to the runs' records."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from app.domain.events.agent_events import COMMAND_EVENTS
from tests.journeys.chaos.truth import Row, Truth
from tests.journeys.chaos.violations import Violation
from tests.support.event_order import check_thread
from tests.support.streams import text_of


def check_logs(truth: Truth) -> Iterator[Violation]:
    of_thread: defaultdict[str, list[Row]] = defaultdict(list)
    of_run: defaultdict[str, list[Row]] = defaultdict(list)
    for event in truth.events:
        of_thread[event["thread_id"]].append(event)
        of_run[event["run_id"]].append(event)
    for thread_id, events in of_thread.items():
        try:
            check_thread(events)
        except AssertionError as broken:
            yield Violation("events out of order", f"thread {thread_id}: {broken}")
        yield from _check_one_at_a_time(thread_id, events)
    for run in truth.runs:
        yield from _check_end(run, of_run[run["id"]])


def _check_one_at_a_time(thread_id: str, events: Sequence[Row]) -> Iterator[Violation]:
    """Between its `run_start` and `run_finish`, a run is the only one that executes on its thread."""
    executing = None
    for event in events:
        run_id, kind = event["run_id"], event["event_type"]
        is_execution_event = kind not in COMMAND_EVENTS and "step" in event
        if executing not in (None, run_id) and (kind == "run_start" or is_execution_event):
            yield Violation(
                "two runs execute on a thread",
                f"thread {thread_id}: {event} while run {executing} executes",
            )
        if kind == "run_start":
            executing = run_id
        elif kind == "run_finish" and executing == run_id:
            executing = None


def _check_end(run: Row, events: Sequence[Row]) -> Iterator[Violation]:
    if run["status"] != "done":
        return
    finishes = [event for event in events if event["event_type"] == "run_finish"]
    ends = [event for event in finishes if event["termination"]["type"] != "suspended"]
    if [event["termination"] for event in ends] != [run["termination"]]:
        yield Violation(
            "the end event differs from the run's record",
            f"run {run['id']}: {ends} and {run['termination']}",
        )
    starts = sum(event["event_type"] == "run_start" for event in events)
    is_suspended = run["is_cancel_requested"]
    if not starts <= len(finishes) <= starts + is_suspended:
        yield Violation(
            "activations and their ends don't match",
            f"run {run['id']}: {starts} starts, {len(finishes)} ends",
        )
    if run["termination"]["type"] == "natural_end":
        streamed = text_of([dict(event) for event in _last_step(events)])
        if streamed != run["final_output"]:
            yield Violation(
                "the streamed text differs from the final output",
                f"run {run['id']}: {streamed!r} and {run['final_output']!r}",
            )


def _last_step(events: Sequence[Row]) -> Sequence[Row]:
    """The events of the last step, from its first start: a step restarted after a rate limit keeps its text."""
    begins = [at for at, event in enumerate(events) if event["event_type"] == "step_start"]
    if not begins:
        return events
    number = events[begins[-1]]["step"]
    return events[next(at for at in begins if events[at]["step"] == number) :]
