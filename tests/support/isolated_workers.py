"""Workers that execute nothing, for tests of ownership."""

import time

from app.agents.demo.catalog import demo_catalog
from app.agents.registry import AgentRegistry
from app.clock import SystemClock, new_id
from app.domain.ids import WorkerId
from app.events.fanout.hub import Hub
from app.events.fanout.notify import NotifyTransport
from app.events.fanout.relay import Relay
from app.events.group_commit import GroupCommit
from app.events.transaction import EventTransactions, Publisher
from app.llm.catalog import ModelCatalog
from app.storage.postgres.database import Database
from app.workers.background_tasks.execution import TaskContext
from app.workers.background_tasks.worker import TaskWorker
from app.workers.execution_context import ExecutionContext
from app.workers.liveness.outage_allowance import OutageAllowance
from app.workers.liveness.poison_guard import PoisonGuard
from app.workers.worker import Worker


def no_outages() -> OutageAllowance:
    """An outage allowance without an outage."""
    return OutageAllowance(time.monotonic, remembered=0)


def demo_registry(database: Database) -> AgentRegistry:
    return AgentRegistry(demo_catalog(), ModelCatalog([], {}), database)


def idle_worker(database: Database) -> Worker:
    me, clock, hub = WorkerId(new_id()), SystemClock(), Hub()
    publisher = Publisher(hub, Relay(database, hub, me, NotifyTransport(database), clock))
    writer = GroupCommit(database, publisher, EventTransactions(database, publisher, clock), clock)
    context = ExecutionContext(
        database=database, writer=writer, agents=demo_registry(database), clock=clock
    )
    return Worker(context, me, PoisonGuard(), slots=1, heartbeat_timeout=5)


def idle_task_worker(database: Database, me: WorkerId) -> TaskWorker:
    clock, hub = SystemClock(), Hub()
    outgoing = EventTransactions(
        database, Publisher(hub, Relay(database, hub, me, NotifyTransport(database), clock)), clock
    )
    context = TaskContext(database=database, outgoing=outgoing, agents=demo_registry(database))
    return TaskWorker(context, me, PoisonGuard(), slots=1, heartbeat_timeout=5)
