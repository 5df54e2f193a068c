"""What was asked and what was heard: all that the checker knows of the clients' side, as lines of a file."""

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
    """What a client wanted."""

    START = "start"
    INPUT = "input"
    DECIDE = "decide"
    CANCEL = "cancel"
    RETRY = "retry"
    PAUSE = "pause"
    RESUME = "resume"
    SIGNAL = "signal"


class Answer(StrEnum):
    """What a client knows of it: it has happened, it has not, or nobody has said so."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(slots=True, kw_only=True)
class Operation:
    """One request. Its `mark` is in the text of each message that it brings."""

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
    said: Json = field(default_factory=dict)

    def answered(self, status: int, said: Json) -> None:
        self.status, self.said = status, said
        if status < 300:
            self.answer = Answer.DONE
        elif status < 500 and said.get("code") != IN_FLIGHT:
            self.answer = Answer.REFUSED

    @property
    def has_not_happened(self) -> bool:
        """Refused at the first try: of an earlier one nobody knows what became of it."""
        return self.answer is Answer.REFUSED and self.tries == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One event as it arrived. `in_log` is what the database said of it in that moment, if it was asked."""

    at: float
    event: Json
    in_log: bool | None = None

    @property
    def seq(self) -> int:
        seq: int = self.event["seq"]
        return seq


@dataclass(slots=True, kw_only=True)
class Hearing:
    """One reader of a run or a thread, over all its connections; `ended` when there was no more to hear."""

    path: str
    frames: list[Frame] = field(default_factory=list)
    connections: int = 0
    ended: bool = False
    refusals: list[Json] = field(default_factory=list)
    """Answers that a reader who does everything right must not get."""


@dataclass(slots=True, kw_only=True)
class Fault:
    """Something that was broken, from when to when."""

    kind: str
    target: str
    began: float
    ended: float | None = None
    pid: int | None = None
    took: float | None = None
    """How long a process that was asked to leave took for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """A run that lost its worker, and how long it took until another one had it."""

    run_id: str
    seconds: float


@dataclass(slots=True)
class History:
    operations: list[Operation] = field(default_factory=list)
    hearings: list[Hearing] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    takeovers: list[Takeover] = field(default_factory=list)
    calm_at: float = 0.0
    """When the last fault was over, by the clock of the rows."""
    settled_in: float | None = None
    """Seconds from the last fault to the end of everything; None when it didn't come."""

    def of(self, kind: Kind) -> Iterator[Operation]:
        return (operation for operation in self.operations if operation.kind is kind)

    def write(self, file: Path) -> None:
        with file.open("w") as lines:
            for operation in self.operations:
                lines.write(_line("operation", asdict(operation)))
            for hearing in self.hearings:
                lines.write(_line("hearing", asdict(hearing)))
            for fault in self.faults:
                lines.write(_line("fault", asdict(fault)))
            for takeover in self.takeovers:
                lines.write(_line("takeover", asdict(takeover)))


def _line(kind: str, what: Json) -> str:
    return json.dumps({"what": kind, **what}) + "\n"
