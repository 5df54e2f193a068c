"""Notifies the nemesis which replica has just answered a decision."""

import asyncio

from tests.journeys.chaos.fleet import Replica


class DecisionNotifier:
    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[Replica]] = []

    def notify(self, replica: Replica) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(replica)

    async def next(self) -> Replica:
        """The next replica that answers a decision."""
        answering: asyncio.Future[Replica] = asyncio.get_running_loop().create_future()
        self._waiting.append(answering)
        return await answering
