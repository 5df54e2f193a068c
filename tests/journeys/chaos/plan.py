"""The faults and their times. Only the seed decides them, so a plan can be repeated."""

import random
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

MIN_PAUSE = 0.3
MAX_PAUSE = 1.8


class Break(StrEnum):
    """One kind of fault: of a replica, the database, a proxy to a replica, or the model."""

    KILL = "kill -9"
    KILL_BEHIND_ANSWER = "kill -9 right behind a decision"
    FREEZE = "stopped longer than its heartbeat"
    DEPLOY = "SIGTERM"
    DATABASE_FAST = "Postgres restarted, fast"
    DATABASE_IMMEDIATE = "Postgres restarted, immediate"
    BACKENDS = "all database connections ended"
    CUT = "connections cut in mid-frame"
    DELAY = "bytes delayed"
    DROP = "bytes dropped"
    FULL = "clients that stop reading"
    MODEL_CUT = "model cuts its answers"
    MODEL_STALL = "model stalls"
    MODEL_REFUSES = "model answers 429"
    MODEL_LIMITS = "model asks for a long pause"
    MODEL_GARBAGE = "model answers garbage"


EVERYTHING: Collection[Break] = tuple(Break)

_LASTS = {
    Break.KILL: (0.0, 0.5),
    Break.KILL_BEHIND_ANSWER: (0.0, 0.5),
    Break.FREEZE: (0.5, 1.5),
    Break.DEPLOY: (0.0, 0.5),
    Break.DATABASE_FAST: (0.0, 0.0),
    Break.DATABASE_IMMEDIATE: (0.0, 0.0),
    Break.BACKENDS: (0.0, 0.0),
    Break.CUT: (0.0, 0.0),
    Break.DELAY: (0.5, 2.0),
    Break.DROP: (0.3, 1.0),
    Break.FULL: (0.5, 3.0),
    Break.MODEL_CUT: (0.2, 1.0),
    Break.MODEL_STALL: (0.2, 1.0),
    Break.MODEL_REFUSES: (0.2, 1.0),
    Break.MODEL_LIMITS: (1.0, 2.0),
    Break.MODEL_GARBAGE: (0.2, 1.0),
}
"""Shortest and longest duration in seconds; a freeze lasts for the heartbeat time-out plus this."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A planned fault; `replica` is its target if it is a fault of a replica."""

    at: float
    what: Break
    lasts: float
    replica: int


def plan(
    seed: int,
    seconds: float,
    replicas: int,
    kinds: Collection[Break] = EVERYTHING,
    pauses: tuple[float, float] = (MIN_PAUSE, MAX_PAUSE),
) -> list[Planned]:
    """The planned faults: every kind occurs once, in random order, before any kind repeats."""
    chance = random.Random(seed)
    planned: list[Planned] = []
    batch: list[Break] = []
    at = chance.uniform(*pauses)
    while at < seconds:
        if not batch:
            batch = sorted(kinds)
            chance.shuffle(batch)
        what = batch.pop()
        planned.append(Planned(at, what, chance.uniform(*_LASTS[what]), chance.randrange(replicas)))
        at += chance.uniform(*pauses)
    return planned
