"""Encodes an event as SSE bytes, once for all of its readers.

A frame has two forms. The whole one has all fields of the envelope. The short one is for a run's own stream,
after its first event: it leaves out `seq`, which is the frame's id, `thread_id` and `run_id`, which the first
event has, and `ts` of deltas.

`run_start` and `run_finish` have a variant with the fields that only traces need: `identity` and
`waiting.since_dispatch_id`. It is encoded when the first reader asks for it.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache

from msgspec import Struct

from app.domain.events.agent_events import DELTA_EVENTS
from app.domain.events.run_events import IDENTITY, RUN_FINISH, RUN_START
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.json_values import compact
from app.domain.runs.identity import SINCE_DISPATCH_ID
from app.domain.runs.terminations import SUSPENDED
from app.domain.timestamps import format_timestamp
from app.storage.events.event_log import EventEntry, LoggedEvent

_BREAKS = {"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""Unicode line separators that some SSE parsers treat as line breaks, as JSON escapes."""
_IDENTITY_FIRST = f'{{"{IDENTITY}":'
_decoder = json.JSONDecoder()
_TRACED_EVENTS = frozenset({RUN_START, RUN_FINISH})
_timestamp = lru_cache(maxsize=16)(format_timestamp)
"""The events of a commit have the same time."""
_NO_TIME = datetime.min.replace(tzinfo=UTC)
_SUSPENDED = f'"termination":{compact(dict(SUSPENDED))}'.encode()


class Frame:
    """One committed event, encoded. `short` and `whole` are its two SSE frames."""

    __slots__ = (
        "_fields_at",
        "_thread_id",
        "_ts",
        "_whole",
        "event_type",
        "run_id",
        "seq",
        "short",
    )

    def __init__(
        self,
        seq: int,
        ts: datetime,
        thread_id: ThreadId,
        run_id: RunId,
        event_type: str,
        fields: str,
    ) -> None:
        """`fields` is the event's JSON from `step` on, with the end of the frame."""
        self.seq = seq
        self.run_id = run_id
        self.event_type = event_type
        self._thread_id = thread_id
        self._ts = ts
        self._whole: bytes | None = None
        at = "" if event_type in DELTA_EVENTS else f'"ts":"{_timestamp(ts)}",'
        envelope = f"id: {seq}\ndata: {{{at}"
        self._fields_at = len(envelope)
        self.short = (envelope + fields).encode()

    @property
    def whole(self) -> bytes:
        if self._whole is None:
            envelope = (
                f'id: {self.seq}\ndata: {{"seq":{self.seq},"ts":"{_timestamp(self._ts)}",'
                f'"thread_id":"{self._thread_id}","run_id":"{self.run_id}",'
            )
            self._whole = envelope.encode() + self.short[self._fields_at :]
        return self._whole

    @property
    def with_trace(self) -> "Frame":
        """The variant with the fields that only traces need; itself if the event has none."""
        return self

    @property
    def ends_its_run(self) -> bool:
        """Whether it is the `run_finish` of a done run, which is the run's last event."""
        return self.event_type == RUN_FINISH and _SUSPENDED not in self.short

    @property
    def json(self) -> bytes:
        """The event's JSON with the whole envelope, without the SSE frame."""
        return self.whole[self.whole.index(b"{") : -2]


class HintFrame(Frame):
    """A message without an id: a reader that reconnects misses it."""

    __slots__ = ()

    def __init__(self, data: str) -> None:
        super().__init__(0, _NO_TIME, ThreadId(""), RunId(""), "changes", "")
        self.short = self._whole = f"data: {data}\n\n".encode()


class TracedFrame(Frame):
    """A frame without the fields that only traces need. Its variant is encoded when a reader asks for it."""

    __slots__ = ("_fields_with_trace", "_with_trace")

    def __init__(
        self,
        seq: int,
        ts: datetime,
        thread_id: ThreadId,
        run_id: RunId,
        event_type: str,
        fields: str,
        fields_with_trace: str,
    ) -> None:
        super().__init__(seq, ts, thread_id, run_id, event_type, fields)
        self._fields_with_trace = fields_with_trace
        self._with_trace: Frame | None = None

    @property
    def with_trace(self) -> Frame:
        if self._with_trace is None:
            self._with_trace = Frame(
                self.seq,
                self._ts,
                self._thread_id,
                self.run_id,
                self.event_type,
                self._fields_with_trace,
            )
        return self._with_trace


class EventBatch(Struct, frozen=True):
    """Events of one run that were committed together, with consecutive numbers."""

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
        for seq, entry in enumerate(self.entries, self.first_seq):
            yield encoded(
                seq, self.ts, self.thread_id, self.run_id, entry.step, entry.event_type, entry.body
            )


def logged_frame(thread_id: ThreadId, event: LoggedEvent) -> Frame:
    return encoded(
        event.seq,
        event.ts,
        thread_id,
        event.run_id,
        event.step,
        event.event_type,
        event.body,
    )


def encoded(
    seq: int,
    ts: datetime,
    thread_id: ThreadId,
    run_id: RunId,
    step: int | None,
    event_type: str,
    body: str,
) -> Frame:
    """Encode an event: the fields of the envelope, then those of the stored JSON body."""
    fields = _fields(step, event_type, body)
    if event_type in _TRACED_EVENTS:
        shown = _fields(step, event_type, _without_trace(body))
        return TracedFrame(seq, ts, thread_id, run_id, event_type, shown, fields)
    return Frame(seq, ts, thread_id, run_id, event_type, fields)


def _fields(step: int | None, event_type: str, body: str) -> str:
    at_step = "" if step is None else f'"step":{step},'
    rest = "}" if body == "{}" else "," + body[1:]
    fields = f'{at_step}"event_type":"{event_type}"{rest}\n\n'
    if not fields.isascii():
        for character, escaped in _BREAKS.items():
            fields = fields.replace(character, escaped)
    return fields


def _without_trace(body: str) -> str:
    """The body without `identity` and `waiting.since_dispatch_id`."""
    if body.startswith(_IDENTITY_FIRST) and SINCE_DISPATCH_ID not in body:
        # As events are stored. Only the identity is parsed, since a result may be long.
        _, end = _decoder.raw_decode(body, len(_IDENTITY_FIRST))
        return "{" + body[end:].removeprefix(",")
    event = json.loads(body)
    event.pop(IDENTITY, None)
    if waiting := event.get("waiting"):
        waiting.pop(SINCE_DISPATCH_ID, None)
    return compact(event)
