"""Inputs: messages that wait to enter a thread's log."""

from collections.abc import Sequence
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A message for a run, pending or already read; `position` orders the pending inputs of one run."""

    id: InputId
    thread_id: ThreadId
    run_id: RunId
    position: int
    message: Message
    status: InputStatus
    revision: int
    created_at: datetime
    consumed_seq: int | None
    """Its position in the thread's log; None while it is pending."""
    run_position: int = 0
    """The position of its run in the thread's queue; smaller numbers run first."""


def in_new_order(pending: Sequence[Input], named: Sequence[InputId]) -> list[Input]:
    """The pending inputs, with the named ones in the given order at the positions that they share."""
    by_id = {each.id: each for each in pending}
    next_one = iter(named)
    moving = set(named)
    return [by_id[next(next_one)] if each.id in moving else each for each in pending]


def runs_in_order(pending: Sequence[Input]) -> list[RunId] | None:
    """The runs in the order of their inputs; None if the inputs of two runs alternate."""
    found = [run_id for run_id, _ in groupby(pending, key=lambda each: each.run_id)]
    return found if len(set(found)) == len(found) else None
