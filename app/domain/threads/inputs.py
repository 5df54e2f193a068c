"""Inputs: messages that wait to enter a thread's log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import groupby

from app.domain.ids import InputId, RunId, ThreadId
from app.domain.threads.messages import Message


class InputStatus(StrEnum):
    PENDING = "pending"
    CONSUMED = "consumed"
    RETRACTED = "retracted"


INPUT_TRANSITIONS: Mapping[InputStatus, frozenset[InputStatus]] = {
    InputStatus.PENDING: frozenset(InputStatus),
    InputStatus.CONSUMED: frozenset({InputStatus.CONSUMED}),
    InputStatus.RETRACTED: frozenset({InputStatus.RETRACTED}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A message that a run hasn't taken yet, or has; `position` orders what one run hasn't."""

    id: InputId
    thread_id: ThreadId
    run_id: RunId
    position: int
    message: Message
    status: InputStatus
    revision: int
    created_at: datetime
    consumed_seq: int | None
    """Its place in the thread's log, once it has one."""
    place: int = 0
    """Where its run stands on the thread, while it waits: less than those that come after it."""


def in_new_order(waiting: Sequence[Input], named: Sequence[InputId]) -> list[Input]:
    """What waits on a thread, with those that are named in that order, on the places that they share."""
    by_id = {each.id: each for each in waiting}
    next_one = iter(named)
    moving = set(named)
    return [by_id[next(next_one)] if each.id in moving else each for each in waiting]


def runs_in_order(waiting: Sequence[Input]) -> list[RunId] | None:
    """Which run reads first, and which next; None when one would read between what another one does."""
    found = [run_id for run_id, _ in groupby(waiting, key=lambda each: each.run_id)]
    return found if len(set(found)) == len(found) else None
