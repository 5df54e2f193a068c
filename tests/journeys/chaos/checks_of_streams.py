"""Frames that readers received: each seq once, in order, without gaps, and each in the log."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.journeys.chaos.history import Json, ReaderRecord
from tests.journeys.chaos.truth import Truth
from tests.journeys.chaos.violations import Violation


def check_streams(reader_records: Sequence[ReaderRecord], truth: Truth) -> Iterator[Violation]:
    logs: dict[str, dict[int, Mapping[str, Any]]] = {}
    for event in truth.events:
        logs.setdefault(f"/v1/runs/{event['run_id']}", {})[event["seq"]] = event
        logs.setdefault(f"/v1/threads/{event['thread_id']}", {})[event["seq"]] = event
    for reader_record in reader_records:
        log = logs.get(reader_record.path, {})
        yield from _check_order(reader_record)
        yield from _check_contents(reader_record, log)
        yield from _check_whole(reader_record, log)
        yield from (
            Violation("a reader is refused", f"{reader_record.path}: {refusal}")
            for refusal in reader_record.refusals
        )


def _check_order(reader_record: ReaderRecord) -> Iterator[Violation]:
    before = 0
    for frame in reader_record.frames:
        if frame.seq <= before:
            yield Violation(
                "a frame is repeated or out of order",
                f"{reader_record.path}: {frame.seq} after {before}",
            )
        before = max(before, frame.seq)


def _check_contents(
    reader_record: ReaderRecord, log: Mapping[int, Mapping[str, Any]]
) -> Iterator[Violation]:
    for frame in reader_record.frames:
        if frame.in_log is False:
            yield Violation(
                "a frame is seen before it is durable", f"{reader_record.path}: {frame.event}"
            )
        if log.get(frame.seq) != _without_time(frame.event):
            yield Violation(
                "a frame that was seen isn't in the log",
                f"{reader_record.path}: {frame.event} is {log.get(frame.seq)}",
            )


def _check_whole(
    reader_record: ReaderRecord, log: Mapping[int, Mapping[str, Any]]
) -> Iterator[Violation]:
    """No gap up to the last received frame; readers that saw the end have the whole log."""
    if not reader_record.ended:
        yield Violation("a stream never ends", f"{reader_record.path}")
    received = {frame.seq for frame in reader_record.frames}
    last = max(log, default=0) if reader_record.ended else max(received, default=0)
    missing = [seq for seq in log if seq <= last and seq not in received]
    if missing and not reader_record.refusals:
        yield Violation("a frame is missing", f"{reader_record.path}: {missing[:20]}")


def _without_time(event: Json) -> Json:
    return {name: value for name, value in event.items() if name != "ts"}
