"""The nemesis: breaks what the plan says when it says so, and leaves everything whole."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import assert_never

from app.clock import sleep
from tests.journeys.chaos.fleet import HEARTBEAT_TIMEOUT, Replica
from tests.journeys.chaos.history import Fault, History
from tests.journeys.chaos.plan import Break, Planned
from tests.journeys.chaos.postgres import Postgres, end_connections
from tests.journeys.chaos.rumours import Rumour
from tests.support.providers import FakeProvider

_MOODS = {
    Break.MODEL_CUT: "cut",
    Break.MODEL_STALL: "stall",
    Break.MODEL_REFUSES: "429-soon",
    Break.MODEL_LIMITS: "429-wait",
    Break.MODEL_GARBAGE: "malformed",
}
_DOWN = frozenset({Break.KILL, Break.KILL_BEHIND_ANSWER, Break.FREEZE, Break.DEPLOY})
"""What takes a replica away."""
_DELAY = 0.15
_PATIENCE = 10.0
"""So long a fault waits for something that it may break."""
_LOOK_AGAIN = 0.1


class Nemesis:
    def __init__(
        self,
        replicas: list[Replica],
        postgres: Postgres | str,
        provider: FakeProvider,
        history: History,
        rumour: Rumour,
        now: Callable[[], float],
    ) -> None:
        self._replicas = replicas
        self._postgres = postgres
        self._provider = provider
        self._history = history
        self._rumour = rumour
        self._now = now
        self._restarting = asyncio.Lock()

    async def play(self, planned: Sequence[Planned]) -> None:
        """Faults overlap as they come; all are over when this returns."""
        async with asyncio.TaskGroup() as breaking:
            for one in planned:
                await sleep(max(0.0, one.at - self._now()))
                breaking.create_task(self._break(one))

    async def _break(self, one: Planned) -> None:
        replica = await self._met_by(one)
        if replica is None:
            return
        fault = Fault(kind=one.what.value, target=replica.name, began=self._now(), pid=replica.pid)
        self._history.faults.append(fault)
        match one.what:
            case Break.KILL | Break.KILL_BEHIND_ANSWER:
                await replica.lost(one.lasts)
            case Break.FREEZE:
                await replica.frozen(HEARTBEAT_TIMEOUT + one.lasts)
            case Break.DEPLOY:
                fault.took = await replica.deployed(one.lasts)
            case Break.DATABASE_FAST | Break.DATABASE_IMMEDIATE | Break.BACKENDS:
                await self._break_database(one.what)
            case Break.CUT | Break.DELAY | Break.DROP | Break.FULL:
                await self._break_road(one, replica)
            case (
                Break.MODEL_CUT
                | Break.MODEL_STALL
                | Break.MODEL_REFUSES
                | Break.MODEL_LIMITS
                | Break.MODEL_GARBAGE
            ):
                await self._break_model(one)
            case _:
                assert_never(one.what)
        fault.ended = self._now()

    async def _met_by(self, one: Planned) -> Replica | None:
        """The planned replica or, while that is down, the next; and never the last one that is up."""
        if one.what not in _DOWN:
            return self._replicas[one.replica]
        turn = self._replicas[one.replica :] + self._replicas[: one.replica]
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                if one.what is Break.KILL_BEHIND_ANSWER:
                    turn = [await self._rumour.next()]
                while sum(replica.is_up for replica in self._replicas) < 2:
                    await sleep(_LOOK_AGAIN)
                return next((replica for replica in turn if replica.is_up), None)
        return None

    async def _break_database(self, what: Break) -> None:
        if isinstance(self._postgres, str):
            await end_connections(self._postgres)
        elif what is Break.BACKENDS:
            await end_connections(self._postgres.url)
        else:
            async with self._restarting:
                await self._postgres.restart("fast" if what is Break.DATABASE_FAST else "immediate")

    async def _break_road(self, one: Planned, replica: Replica) -> None:
        road = replica.road
        match one.what:
            case Break.CUT:
                road.cut()
            case Break.DELAY:
                async with road.delaying(_DELAY):
                    await sleep(one.lasts)
            case Break.DROP:
                async with road.dropping():
                    await sleep(one.lasts)
            case _:
                async with road.not_reading():
                    await sleep(one.lasts)

    async def _break_model(self, one: Planned) -> None:
        await asyncio.to_thread(self._provider.be, _MOODS[one.what])
        try:
            await sleep(one.lasts)
        finally:
            await asyncio.to_thread(self._provider.be, "")
