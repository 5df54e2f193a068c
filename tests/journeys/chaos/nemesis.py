"""The nemesis: injects the planned faults at their times, and ends all of them."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import assert_never

from app.clock import sleep
from tests.journeys.chaos.decision_notifier import DecisionNotifier
from tests.journeys.chaos.fleet import HEARTBEAT_TIMEOUT, Replica
from tests.journeys.chaos.history import Fault, History
from tests.journeys.chaos.plan import Break, Planned
from tests.journeys.chaos.postgres import Postgres, end_connections
from tests.support.providers import FakeProvider

_FAILURE_MODES = {
    Break.MODEL_CUT: "cut",
    Break.MODEL_STALL: "stall",
    Break.MODEL_REFUSES: "429-soon",
    Break.MODEL_LIMITS: "429-wait",
    Break.MODEL_GARBAGE: "malformed",
}
_DOWN = frozenset({Break.KILL, Break.KILL_BEHIND_ANSWER, Break.FREEZE, Break.DEPLOY})
"""Faults that take a replica down."""
_DELAY = 0.15
_TIMEOUT_SECONDS = 10.0
"""Seconds that a fault waits for a suitable target."""
_POLL_SECONDS = 0.1


class Nemesis:
    def __init__(
        self,
        replicas: list[Replica],
        postgres: Postgres | str,
        provider: FakeProvider,
        history: History,
        decision_notifier: DecisionNotifier,
        now: Callable[[], float],
    ) -> None:
        self._replicas = replicas
        self._postgres = postgres
        self._provider = provider
        self._history = history
        self._decision_notifier = decision_notifier
        self._now = now
        self._restarting = asyncio.Lock()

    async def play(self, planned: Sequence[Planned]) -> None:
        """Injects the planned faults, which may overlap; all have ended when this returns."""
        async with asyncio.TaskGroup() as breaking:
            for one in planned:
                await sleep(max(0.0, one.at - self._now()))
                breaking.create_task(self._break(one))

    async def _break(self, one: Planned) -> None:
        replica = await self._target_of(one)
        if replica is None:
            return
        fault = Fault(kind=one.what.value, target=replica.name, began=self._now(), pid=replica.pid)
        self._history.faults.append(fault)
        match one.what:
            case Break.KILL | Break.KILL_BEHIND_ANSWER:
                await replica.kill_and_restart(one.lasts)
            case Break.FREEZE:
                await replica.freeze(HEARTBEAT_TIMEOUT + one.lasts)
            case Break.DEPLOY:
                fault.took = await replica.redeploy(one.lasts)
            case Break.DATABASE_FAST | Break.DATABASE_IMMEDIATE | Break.BACKENDS:
                await self._break_database(one.what)
            case Break.CUT | Break.DELAY | Break.DROP | Break.FULL:
                await self._break_proxy(one, replica)
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

    async def _target_of(self, one: Planned) -> Replica | None:
        """The planned replica or, while that is down, the next one; never the last one that is up."""
        if one.what not in _DOWN:
            return self._replicas[one.replica]
        candidates = self._replicas[one.replica :] + self._replicas[: one.replica]
        with suppress(TimeoutError):
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                if one.what is Break.KILL_BEHIND_ANSWER:
                    candidates = [await self._decision_notifier.next()]
                while sum(replica.is_up for replica in self._replicas) < 2:
                    await sleep(_POLL_SECONDS)
                return next((replica for replica in candidates if replica.is_up), None)
        return None

    async def _break_database(self, what: Break) -> None:
        if isinstance(self._postgres, str):
            await end_connections(self._postgres)
        elif what is Break.BACKENDS:
            await end_connections(self._postgres.url)
        else:
            async with self._restarting:
                await self._postgres.restart("fast" if what is Break.DATABASE_FAST else "immediate")

    async def _break_proxy(self, one: Planned, replica: Replica) -> None:
        proxy = replica.proxy
        match one.what:
            case Break.CUT:
                proxy.cut()
            case Break.DELAY:
                async with proxy.delaying(_DELAY):
                    await sleep(one.lasts)
            case Break.DROP:
                async with proxy.dropping():
                    await sleep(one.lasts)
            case _:
                async with proxy.not_reading():
                    await sleep(one.lasts)

    async def _break_model(self, one: Planned) -> None:
        await asyncio.to_thread(self._provider.be, _FAILURE_MODES[one.what])
        try:
            await sleep(one.lasts)
        finally:
            await asyncio.to_thread(self._provider.be, "")
