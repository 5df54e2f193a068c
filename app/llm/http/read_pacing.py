"""Paces the reading of many answers at once, so that each read finds several tokens.

Reading, committing and sending one token costs nearly as much as several together. So the more answers a
process streams, the longer each of them waits between two reads. Up to `UNPACED` answers, none waits. An
answer is read at once in its first moments, so that its first token is never late.
"""

import asyncio

UNPACED = 60
"""Answers that a process streams at once before their reads are paced."""
SECONDS_PER_ANSWER = 80e-6
"""500 answers are read every 40 ms: a process reads at most 12,500 times per second."""
MAX_INTERVAL_SECONDS = 0.04
"""Most time between two reads of an answer, because a client sees its tokens that much later."""
SLOT_SECONDS = 0.005
"""Reads that are due at about the same time happen together, after one timer."""
UNPACED_SECONDS = 0.25
"""The first moments of an answer."""


class ReadPacing:
    """The pace of one process."""

    def __init__(self) -> None:
        self._answers = 0
        self._slots: dict[int, list[asyncio.Future[None]]] = {}
        """The waiting reads of each slot."""

    @property
    def interval(self) -> float:
        """Seconds between two reads of an answer; 0 if they aren't paced."""
        if self._answers <= UNPACED:
            return 0.0
        return min(self._answers * SECONDS_PER_ANSWER, MAX_INTERVAL_SECONDS)

    def begin_wait(self) -> None:
        """Count an answer whose next bytes are awaited."""
        self._answers += 1

    def end_wait(self) -> None:
        self._answers -= 1

    async def pause_until(self, due: float) -> None:
        """Wait until a time of the event loop, at most one slot longer."""
        loop = asyncio.get_running_loop()
        if due <= loop.time():
            return
        number = int(due / SLOT_SECONDS) + 1
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = []
            loop.call_at(number * SLOT_SECONDS, self._open, number)
        turn = loop.create_future()
        slot.append(turn)
        await turn

    def _open(self, number: int) -> None:
        for turn in self._slots.pop(number):
            if not turn.done():
                turn.set_result(None)
