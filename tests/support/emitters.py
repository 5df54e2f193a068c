"""Event writer, hub and relay of one process, without a server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from app.clock import Clock, SystemClock, new_id
from app.domain.ids import WorkerId
from app.domain.runs.runs import NewRun
from app.events.fanout.hub import Hub, Subscription
from app.events.fanout.notify import NotifyTransport
from app.events.fanout.relay import Relay, Transport
from app.events.group_commit import GroupCommit
from app.events.journal import Journal
from app.events.transaction import EventTransactions, Publisher
from app.storage.postgres.database import Database

TIMEOUT_SECONDS = 20.0
"""Seconds until an expected event counts as missing."""


@dataclass(frozen=True, slots=True)
class Emitters:
    hub: Hub
    relay: Relay
    outgoing: EventTransactions
    writer: GroupCommit
    tasks: asyncio.TaskGroup
    writing: "asyncio.Task[None]"

    def of(self, run: NewRun, attempt: int = 1) -> tuple[Journal, list[str]]:
        """An emitter of a run, and a list that gets an entry when the run is lost."""
        lost: list[str] = []
        journal = self.writer.journal(
            run.tenant, run.thread_id, run.id, attempt, lambda: lost.append("lost")
        )
        return journal, lost

    def listen(self, run: NewRun) -> Subscription:
        return self.hub.subscribe(run.tenant, run.thread_id)


@asynccontextmanager
async def writing(
    database: Database, clock: Clock | None = None, *, wire: Transport | None = None
) -> AsyncIterator[Emitters]:
    hub, clock = Hub(), clock or SystemClock()
    relay = Relay(database, hub, WorkerId(new_id()), wire or NotifyTransport(database), clock)
    publisher = Publisher(hub, relay)
    outgoing = EventTransactions(database, publisher, clock)
    writer = GroupCommit(database, publisher, outgoing, clock)
    async with asyncio.timeout(TIMEOUT_SECONDS), asyncio.TaskGroup() as tasks:
        at_work = tasks.create_task(writer.run()), tasks.create_task(relay.run())
        yield Emitters(hub, relay, outgoing, writer, tasks, at_work[0])
        for work in at_work:
            work.cancel()
