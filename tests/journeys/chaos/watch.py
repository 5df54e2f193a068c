"""Polls the owners of all runs, and records how long a lost run was without a live worker."""

from collections.abc import Callable
from dataclasses import dataclass

import asyncpg

from app.clock import sleep
from app.storage.postgres.database import DATABASE_UNAVAILABLE
from tests.journeys.chaos.history import Fault, History, Takeover
from tests.journeys.chaos.plan import Break

_EVERY = 0.1
_EXECUTING = """
SELECT r.id::text, r.attempt, w.pid FROM runs r LEFT JOIN workers w ON w.id = r.owner
WHERE r.status = 'running'
"""
_LOSSES = frozenset({Break.KILL.value, Break.KILL_BEHIND_ANSWER.value, Break.FREEZE.value})


@dataclass(frozen=True, slots=True)
class _Seen:
    attempt: int
    pid: int | None


async def watch(url: str, history: History, now: Callable[[], float]) -> None:
    """Poll until cancelled."""
    before: dict[str, _Seen] = {}
    while True:
        try:
            connection = await asyncpg.connect(url, timeout=2)
            try:
                while True:
                    rows = await connection.fetch(_EXECUTING, timeout=2)
                    seen = {row["id"]: _Seen(row["attempt"], row["pid"]) for row in rows}
                    _note_takeovers(history, before, seen, now())
                    before = seen
                    await sleep(_EVERY)
            finally:
                connection.terminate()
        except DATABASE_UNAVAILABLE:
            await sleep(_EVERY)


def _note_takeovers(
    history: History, before: dict[str, _Seen], seen: dict[str, _Seen], at: float
) -> None:
    for run_id, now in seen.items():
        then = before.get(run_id)
        if then is None or now.attempt == then.attempt or then.pid is None:
            continue
        lost_at = _lost_at(history, then.pid, at)
        if lost_at is not None:
            history.takeovers.append(Takeover(run_id=run_id, seconds=at - lost_at))


def _lost_at(history: History, pid: int, at: float) -> float | None:
    """When the process was last killed or frozen; a process that was continued since then does not count."""
    return max(
        (
            fault.began
            for fault in history.faults
            if fault.pid == pid and fault.kind in _LOSSES and not _is_back(fault, at)
        ),
        default=None,
    )


def _is_back(fault: Fault, at: float) -> bool:
    is_frozen = fault.kind == Break.FREEZE.value
    return is_frozen and fault.ended is not None and at > fault.ended + 2 * _EVERY
