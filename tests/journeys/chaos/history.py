"""The requests and received frames: everything the checker knows of the clients, written as JSON lines."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]


IN_FLIGHT = "idempotency_key_in_flight"
NOT_OURS = "not ours"
"""The code of answers that aren't JSON."""


class Kind(StrEnum):
    """The kind of a request."""

    START = "start"
    INPUT = "input"
    DECIDE = "decide"
    CANCEL = "cancel"
    RETRY = "retry"
    PAUSE = "pause"
    RESUME = "resume"
    SIGNAL = "signal"


class Answer(StrEnum):
    """What a client knows of its request: accepted, refused, or not answered."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(slots=True, kw_only=True)
class Operation:
    """One request. Its `mark` is in the text of each of its messages."""

    mark: str
    kind: Kind
    path: str
    body: Json
    key: str | None = None
    tries: int = 0
    began: float = 0.0
    ended: float | None = None
    answer: Answer = Answer.UNKNOWN
    status: int | None = None
    response: Json = field(default_factory=dict)

    def answered(self, status: int, response: Json) -> None:
        self.status, self.response = status, response
        if status < 300:
            self.answer = Answer.DONE
        elif status < 500 and response.get("code") != IN_FLIGHT:
            self.answer = Answer.REFUSED

    @property
    def was_refused_at_once(self) -> bool:
        """Refused at the first try; an earlier try without an answer may have taken effect."""
        return self.answer is Answer.REFUSED and self.tries == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One event as it arrived. `in_log` says whether the database had it at that moment, None if not asked."""

    at: float
    event: Json
    in_log: bool | None = None

    @property
    def seq(self) -> int:
        seq: int = self.event["seq"]
        return seq


@dataclass(slots=True, kw_only=True)
class ReaderRecord:
    """The frames of one reader, over all its connections; `ended` after the end of the log."""

    path: str
    frames: list[Frame] = field(default_factory=list)
    connections: int = 0
    ended: bool = False
    refusals: list[Json] = field(default_factory=list)
    """Answers that a correct reader must not get."""


@dataclass(slots=True, kw_only=True)
class Fault:
    """One injected fault, with its start and end."""

    kind: str
    target: str
    began: float
    ended: float | None = None
    pid: int | None = None
    took: float | None = None
    """How long a process took to exit after SIGTERM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """A run that lost its worker, and the seconds until another worker had it."""

    run_id: str
    seconds: float


@dataclass(slots=True)
class History:
    operations: list[Operation] = field(default_factory=list)
    reader_records: list[ReaderRecord] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    takeovers: list[Takeover] = field(default_factory=list)
    calm_at: float = 0.0
    """When the last fault ended, by the database clock."""
    settled_in: float | None = None
    """Seconds from the last fault until every run was done; None if that didn't happen."""

    def of(self, kind: Kind) -> Iterator[Operation]:
        return (operation for operation in self.operations if operation.kind is kind)

    def write(self, file: Path) -> None:
        with file.open("w") as lines:
            for operation in self.operations:
                lines.write(_line("operation", asdict(operation)))
            for reader_record in self.reader_records:
                lines.write(_line("reader", asdict(reader_record)))
            for fault in self.faults:
                lines.write(_line("fault", asdict(fault)))
            for takeover in self.takeovers:
                lines.write(_line("takeover", asdict(takeover)))


def _line(kind: str, what: Json) -> str:
    return json.dumps({"what": kind, **what}) + "\n"
