"""The results of a trial as a table."""

from collections import Counter
from itertools import pairwise

from app.domain.events.run_events import RUN_FINISH, RUN_START
from tests.journeys.chaos.checks_of_children import ends_of_trees, settling_of_tree
from tests.journeys.chaos.checks_of_rate_limits import rate_limit_waits
from tests.journeys.chaos.history import Answer, History, Kind, ReaderRecord
from tests.journeys.chaos.plan import Break
from tests.journeys.chaos.trial import Outcome


def table(outcome: Outcome, seed: int) -> str:
    history, truth = outcome.history, outcome.truth
    injected = Counter(fault.kind for fault in history.faults)
    answers = Counter(operation.answer for operation in history.operations)
    frames = sum(len(reader_record.frames) for reader_record in history.reader_records)
    rows = [
        ("seed", f"{seed}"),
        *((kind.value, f"{injected[kind.value]}") for kind in Break if injected[kind.value]),
        ("faults", f"{injected.total()}"),
        ("requests done", f"{answers[Answer.DONE]}"),
        ("requests refused", f"{answers[Answer.REFUSED]}"),
        ("requests without an answer", f"{answers[Answer.UNKNOWN]}"),
        ("runs", f"{len(truth.runs)}"),
        *((f"runs {how}", f"{count}") for how, count in _ends(outcome).most_common()),
        ("decisions", f"{sum(one.answer is Answer.DONE for one in history.of(Kind.DECIDE))}"),
        ("pauses", f"{_pauses(outcome)}"),
        ("runs suspended by a pause", f"{_suspended_by_a_pause(outcome)}"),
        ("signals", f"{len(truth.signals)}"),
        ("events that calls got", f"{_events_received(outcome)}"),
        ("side effects", f"{len(truth.effects)}"),
        ("waits for a rate limit", f"{len(rate_limit_waits(truth))}"),
        *_trees(outcome),
        ("streams", f"{len(history.reader_records)}"),
        ("connections of streams", f"{sum(one.connections for one in history.reader_records)}"),
        ("frames checked", f"{frames}"),
        ("takeovers", f"{len(history.takeovers)}"),
        ("longest takeover", _seconds(_longest_takeover(history))),
        ("longest stall", _seconds(max(map(_longest_stall, history.reader_records), default=0.0))),
        ("longest deploy", _seconds(max((one.took or 0.0 for one in history.faults), default=0.0))),
        ("all runs done within", _seconds(history.settled_in)),
        ("violations", f"{len(outcome.violations)}"),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value:>10}" for name, value in rows)


def _ends(outcome: Outcome) -> Counter[str]:
    ends = (run["termination"] or {"type": run["status"]} for run in outcome.truth.runs)
    return Counter(" ".join(filter(None, (end["type"], end.get("code")))) for end in ends)


def _pauses(outcome: Outcome) -> int:
    return sum(event["event_type"] == "pause_requested" for event in outcome.truth.events)


def _suspended_by_a_pause(outcome: Outcome) -> int:
    return sum(
        (event.get("waiting") or {}).get("reason") == "manual_pause"
        for event in outcome.truth.events
        if event["event_type"] == RUN_FINISH
    )


def _events_received(outcome: Outcome) -> int:
    return sum(effect["tool"] == "receive" for effect in outcome.truth.effects)


def _trees(outcome: Outcome) -> list[tuple[str, str]]:
    """The slowest end of a cancelled tree, with and without the time before the faults had ended."""
    calm_at = outcome.history.calm_at
    children = [run for run in outcome.truth.runs if run["parent_run_id"] is not None]
    cancelled = [
        (top, below)
        for top, below in ends_of_trees(outcome.truth)
        if below and top["termination"]["type"] == "cancelled"
    ]
    slowest = max((settling_of_tree(*tree) for tree in cancelled), default=0.0)
    in_calm = max((settling_of_tree(*tree, since=calm_at) for tree in cancelled), default=0.0)
    return [
        ("children", f"{len(children)}"),
        ("deepest child", f"{max((child['depth'] for child in children), default=0)}"),
        ("trees cancelled", f"{len(cancelled)}"),
        ("longest settling of a tree", _seconds(slowest)),
        ("longest settling after the faults", _seconds(in_calm)),
    ]


def _longest_takeover(history: History) -> float:
    return max((takeover.seconds for takeover in history.takeovers), default=0.0)


def _longest_stall(reader_record: ReaderRecord) -> float:
    """The longest time between two frames that a reader received while the run executed."""
    longest, executes = 0.0, False
    for before, after in pairwise(reader_record.frames):
        kind = before.event["event_type"]
        executes = kind == RUN_START or (executes and kind != RUN_FINISH)
        if executes:
            longest = max(longest, after.at - before.at)
    return longest


def _seconds(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.2f} s"
