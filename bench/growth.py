"""How the cost of a turn grows with its thread: turn 500 against turn 5, measured alternately.

A checkpoint writes what is new, so nothing that is written may grow. What must be read and sent to the
model does; that is a separate line.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from uuid import uuid4

from bench.clients import HoldfastClient
from bench.database import Postgres
from bench.table import Line, Mark, count, milliseconds, times

EARLY = 5
LATE = 500
TEXT = "hello " * 20
GROWTH = Mark("<= 1.15x", most=1.15)
WHOLE_TURN = Mark("<= 1.3x", most=1.3)

_CHECKPOINTS = re.compile(r"^holdfast_checkpoint_seconds_(sum|count) (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Turn:
    """The cost of one turn."""

    rows: float
    wal: float
    checkpoint: float
    history: float
    total: float


async def growth(ours: HoldfastClient, postgres: Postgres, *, pairs: int) -> list[Line]:
    """Measure `pairs` late turns of one thread and as many early turns of new threads, in turn."""
    old = str(uuid4())
    for _ in range(LATE - pairs // 2 - 1):
        await ours.turn(old, TEXT)
    early, late = [], []
    for _ in range(pairs):
        early.append(await _measured_turn(ours, postgres, await _young_thread(ours)))
        # What is measured besides a turn reads large tables, and slows the next turn down.
        await _young_thread(ours)
        late.append(await _measured_turn(ours, postgres, old))

    def line(
        what: str, of: Callable[[Turn], float], show: Callable[[float], str], mark: Mark | None
    ) -> Line:
        before, after = median(map(of, early)), median(map(of, late))
        ratio = after / before
        return Line(what, show(after), show(before), times(ratio), mark, ratio)

    return [
        line("rows written", lambda turn: turn.rows, count, GROWTH),
        line("WAL bytes written", lambda turn: turn.wal, count, GROWTH),
        line("time of its checkpoint", lambda turn: turn.checkpoint, milliseconds, GROWTH),
        line("loading the history", lambda turn: turn.history, milliseconds, None),
        line("the whole turn", lambda turn: turn.total, milliseconds, WHOLE_TURN),
    ]


async def _young_thread(ours: HoldfastClient) -> str:
    """A new thread whose next turn is an early one."""
    thread = str(uuid4())
    for _ in range(EARLY - 1):
        await ours.turn(thread, TEXT)
    return thread


async def _measured_turn(ours: HoldfastClient, postgres: Postgres, thread: str) -> Turn:
    seconds, checkpoints = _checkpoints(await ours.metrics())
    wal, xid = await postgres.position()
    timing = await ours.turn(thread, TEXT)
    wal_after, _ = await postgres.position()
    seconds_after, checkpoints_after = _checkpoints(await ours.metrics())
    return Turn(
        rows=await postgres.rows_since(xid),
        wal=wal_after - wal,
        checkpoint=(seconds_after - seconds) / (checkpoints_after - checkpoints),
        # After the turn: this process decodes a long history, and would be slower to ask for the turn.
        history=await postgres.history_seconds(thread),
        total=timing.total,
    )


def _checkpoints(metrics: str) -> tuple[float, float]:
    """The total seconds of all checkpoints, and their number."""
    found = dict(_CHECKPOINTS.findall(metrics))
    return float(found["sum"]), float(found["count"])
