"""Answers that are kept for some seconds, so that many open pages cost the database as much as one."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

KEPT_SECONDS = 3.0
MAX_KEPT = 200


@dataclass(slots=True)
class _Answer(Generic[T]):
    """An answer, when it was read, and the lock of those that wait for it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    value: T | None = None
    read_at: float = float("-inf")


class KeptAnswers(Generic[T]):
    """Equal questions get one answer: at the same time, and within `KEPT_SECONDS`."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, _Answer[T]] = {}

    async def get(self, question: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        answer = self._answers.get(question)
        if answer is None:
            self._forget()
            answer = self._answers[question] = _Answer()
        async with answer.lock:
            if answer.value is None or self._now() - answer.read_at > KEPT_SECONDS:
                answer.value = await ask()
                answer.read_at = self._now()
            return answer.value

    def _forget(self) -> None:
        """Drop old answers, and the first ones when there are too many."""
        now = self._now()
        for key, answer in list(self._answers.items()):
            is_old = now - answer.read_at > KEPT_SECONDS
            if len(self._answers) >= MAX_KEPT or (is_old and not answer.lock.locked()):
                del self._answers[key]

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
