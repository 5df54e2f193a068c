"""Workers that execute nothing, for those who only ask what they own."""

import time

from app.agents.demo import demo_catalog
from app.agents.roster import Roster
from app.clock import SystemClock, new_id
from app.dispatch.bench import Workbench
from app.dispatch.deafness import Deafness
from app.dispatch.suspicion import Suspicion
from app.dispatch.task_execution import TaskBench
from app.dispatch.tasks import TaskWorker
from app.dispatch.worker import Worker
from app.domain.ids import WorkerId
from app.events.hub import Hub
from app.events.notify_wire import NotifyWire
from app.events.outgoing import Outgoing, Publisher
from app.events.relay import Relay
from app.events.writer import Writer
from app.llm.catalog import ModelCatalog
from app.storage.database import Database


def never_deaf() -> Deafness:
    """The database was there all the time."""
    return Deafness(time.monotonic, remembered=0)


def demo_roster(database: Database) -> Roster:
    return Roster(demo_catalog(), ModelCatalog([], {}), database)


def idle_worker(database: Database) -> Worker:
    me, clock, hub = WorkerId(new_id()), SystemClock(), Hub()
    publisher = Publisher(hub, Relay(database, hub, me, NotifyWire(database), clock))
    writer = Writer(database, publisher, Outgoing(database, publisher, clock), clock)
    bench = Workbench(database=database, writer=writer, roster=demo_roster(database), clock=clock)
    return Worker(bench, me, Suspicion(), slots=1, heartbeat_timeout=5)


def idle_task_worker(database: Database, me: WorkerId) -> TaskWorker:
    clock, hub = SystemClock(), Hub()
    outgoing = Outgoing(
        database, Publisher(hub, Relay(database, hub, me, NotifyWire(database), clock)), clock
    )
    bench = TaskBench(database=database, outgoing=outgoing, roster=demo_roster(database))
    return TaskWorker(bench, me, Suspicion(), slots=1, heartbeat_timeout=5)
