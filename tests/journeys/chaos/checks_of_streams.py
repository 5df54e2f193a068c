"""What readers have heard: every number once and in order, none missing, and nothing that isn't in the log."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.journeys.chaos.history import Hearing, Json
from tests.journeys.chaos.truth import Truth
from tests.journeys.chaos.violations import Violation


def check_streams(hearings: Sequence[Hearing], truth: Truth) -> Iterator[Violation]:
    logs: dict[str, dict[int, Mapping[str, Any]]] = {}
    for event in truth.events:
        logs.setdefault(f"/v1/runs/{event['run_id']}", {})[event["seq"]] = event
        logs.setdefault(f"/v1/threads/{event['thread_id']}", {})[event["seq"]] = event
    for hearing in hearings:
        log = logs.get(hearing.path, {})
        yield from _check_order(hearing)
        yield from _check_contents(hearing, log)
        yield from _check_whole(hearing, log)
        yield from (
            Violation("a reader is refused", f"{hearing.path}: {refusal}")
            for refusal in hearing.refusals
        )


def _check_order(hearing: Hearing) -> Iterator[Violation]:
    before = 0
    for frame in hearing.frames:
        if frame.seq <= before:
            yield Violation(
                "a frame comes twice or too late",
                f"{hearing.path}: {frame.seq} after {before}",
            )
        before = max(before, frame.seq)


def _check_contents(hearing: Hearing, log: Mapping[int, Mapping[str, Any]]) -> Iterator[Violation]:
    for frame in hearing.frames:
        if frame.in_log is False:
            yield Violation(
                "a frame is seen before it is durable", f"{hearing.path}: {frame.event}"
            )
        if log.get(frame.seq) != _without_time(frame.event):
            yield Violation(
                "a frame that was seen isn't in the log",
                f"{hearing.path}: {frame.event} is {log.get(frame.seq)}",
            )


def _check_whole(hearing: Hearing, log: Mapping[int, Mapping[str, Any]]) -> Iterator[Violation]:
    """From the first event to the last that was heard; to the very last for whoever heard the end."""
    if not hearing.ended:
        yield Violation("a stream never ends", f"{hearing.path}")
    heard = {frame.seq for frame in hearing.frames}
    last = max(log, default=0) if hearing.ended else max(heard, default=0)
    missing = [seq for seq in log if seq <= last and seq not in heard]
    if missing and not hearing.refusals:
        yield Violation("a frame is missing", f"{hearing.path}: {missing[:20]}")


def _without_time(event: Json) -> Json:
    return {name: value for name, value in event.items() if name != "ts"}
