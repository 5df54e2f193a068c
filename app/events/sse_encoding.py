"""An event as the bytes that every one of its readers gets: encoded once, shared by all."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.domain.events.run_events import RUN_FINISH
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.json_values import compact
from app.domain.runs.terminations import SUSPENDED
from app.domain.timestamps import format_timestamp
from app.storage.events.event_log import EventEntry, LoggedEvent

_BREAKS = {"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""What some readers take for the end of a line. In JSON it stands in strings only, and may be spelled."""
_SUSPENDED = f'"termination":{compact(dict(SUSPENDED))}'.encode()


@dataclass(frozen=True, slots=True)
class Frame:
    """One durable event on its way to clients. `data` is its whole SSE frame."""

    seq: int
    run_id: RunId
    event_type: str
    data: bytes

    @property
    def ends_its_run(self) -> bool:
        """A `run_finish` that leaves nothing waiting: no event of the run comes after it."""
        return self.event_type == RUN_FINISH and _SUSPENDED not in self.data

    @property
    def json(self) -> bytes:
        """The event alone, as a page shows it."""
        return self.data[self.data.index(b"{") : -2]


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events of one run that were committed together, under consecutive numbers."""

    tenant: Tenant
    thread_id: ThreadId
    run_id: RunId
    first_seq: int
    entries: Sequence[EventEntry]
    ts: datetime

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.entries) - 1

    def frames(self) -> Iterator[Frame]:
        ts = format_timestamp(self.ts)
        for seq, entry in enumerate(self.entries, self.first_seq):
            yield encoded(
                seq, ts, self.thread_id, self.run_id, entry.step, entry.event_type, entry.body
            )


def logged_frame(thread_id: ThreadId, event: LoggedEvent) -> Frame:
    return encoded(
        event.seq,
        format_timestamp(event.ts),
        thread_id,
        event.run_id,
        event.step,
        event.event_type,
        event.body,
    )


def encoded(
    seq: int,
    ts: str,
    thread_id: ThreadId,
    run_id: RunId,
    step: int | None,
    event_type: str,
    body: str,
) -> Frame:
    """An event's frame: the envelope, and then the fields of its body."""
    # The stored body is a JSON object; its fields follow those of the envelope.
    at_step = "" if step is None else f'"step":{step},'
    rest = "}" if body == "{}" else "," + body[1:]
    text = (
        f'id: {seq}\ndata: {{"seq":{seq},"ts":"{ts}","thread_id":"{thread_id}","run_id":"{run_id}",'
        f'{at_step}"event_type":"{event_type}"{rest}\n\n'
    )
    if not text.isascii():
        for character, spelled in _BREAKS.items():
            text = text.replace(character, spelled)
    return Frame(seq, run_id, event_type, text.encode())
