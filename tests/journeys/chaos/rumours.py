"""Who has just answered a decision, for a nemesis that strikes right behind the answer."""

import asyncio

from tests.journeys.chaos.fleet import Replica


class Rumour:
    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[Replica]] = []

    def spread(self, replica: Replica) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(replica)

    async def next(self) -> Replica:
        """The next one that answers."""
        told: asyncio.Future[Replica] = asyncio.get_running_loop().create_future()
        self._waiting.append(told)
        return await told
