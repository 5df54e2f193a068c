"""Many clients act concurrently on a few threads: rows and readers agree about the outcome."""

import asyncio
import json
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing, suppress

import asyncpg
import pytest

from app.clock import new_id
from app.commands.runs.new_run import OnActive
from app.domain.errors import Refusal
from app.domain.ids import ThreadId
from app.domain.runs.runs import RunFilter, RunStatus
from app.domain.slices import Order, PageRequest
from app.domain.threads.messages import MessageFilter, Role
from app.domain.tickets.tickets import TicketStatus
from app.events import follow as following
from app.llm.scripted.model import Call, ScriptedTurn, turn
from app.runtime.ports.models import ModelRequest
from app.storage.postgres.database import DATABASE_UNAVAILABLE
from app.storage.runs import listing
from app.storage.threads import messages
from tests.support.conditions import eventually
from tests.support.event_order import check_thread
from tests.support.invariants import broken_invariants, deadlocks
from tests.support.probes import Probe
from tests.support.replicas import ANN, Event, Replica, Run, an_agent, open_replica

pytestmark = pytest.mark.anyio

THREADS = 4
CLIENTS = 4
COMMANDS_PER_CLIENT = 20
ON_ACTIVE = [OnActive.ENQUEUE, OnActive.ENQUEUE, *OnActive]


def talk_or_call(request: ModelRequest) -> ScriptedTurn:
    """Calls tools or talks, as the newest prompt demands."""
    newest = request.messages[-1]
    if newest.role is Role.TOOL:
        return turn("and that is that")
    match newest.text:
        case "ask":
            return turn("I'd like to", Call(tool="ask"), Call(tool="ask"))
        case "work":
            return turn("let me see", Call(tool="work"), Call(tool="work"))
        case _:
            return turn("one two three four five six seven eight nine ten")


class ConcurrentClients:
    """Clients that send random commands, each to a random replica."""

    def __init__(self, replicas: list[Replica], chance: random.Random) -> None:
        self.replicas = replicas
        self.chance = chance
        self.threads = [ThreadId(new_id()) for _ in range(THREADS)]
        self.runs: list[Run] = []

    def some_replica(self) -> Replica:
        return self.chance.choice(self.replicas)

    def some_run(self) -> Run:
        """Prefers recent runs, because the older ones are done."""
        place = min(int(self.chance.expovariate(0.3)), len(self.runs) - 1)
        return self.some_replica().same(self.runs[-1 - place])

    async def run_all(self) -> None:
        async with asyncio.TaskGroup() as clients:
            for _ in range(CLIENTS):
                clients.create_task(self._client())

    async def _client(self) -> None:
        for _ in range(COMMANDS_PER_CLIENT):
            with suppress(Refusal, *DATABASE_UNAVAILABLE):
                await self._random_command()

    async def _random_command(self) -> None:
        match self.chance.choice(["start", "start", "start", "decide", "decide", "cancel"]):
            case "start":
                run = await self.some_replica().start(
                    self.chance.choice(["talk", "ask", "work"]),
                    thread_id=self.chance.choice(self.threads),
                    here=self.chance.random() < 0.7,
                    on_active=self.chance.choice(ON_ACTIVE),
                )
                self.runs.append(run)
            case "decide" if self.runs:
                run = self.some_run()
                for ticket in await run.tickets():
                    if ticket.status is TicketStatus.OPEN and self.chance.random() < 0.7:
                        action = self.chance.choice(["approve", "reject", "respond", "cancel"])
                        await run.decide(ticket.id, action, result=1)
            case "cancel" if self.runs:
                await self.some_run().cancel("cancelled by a client")
            case _:
                return

    async def cancel_until_all_are_done(self, through: Replica) -> None:
        """Cancels each waiting run, which starts the run queued behind it."""

        async def all_done() -> bool:
            async with through.database.reading() as connection:
                records = await listing.page(
                    connection, ANN.tenant, RunFilter(), PageRequest(limit=1000)
                )
            for record in records:
                if record.status is RunStatus.WAITING:
                    await Run(through, record).cancel("the end")
            return all(record.is_done for record in records)

        await eventually(all_done)


async def events_read_by(
    replica: Replica, thread_id: ThreadId, until: asyncio.Event
) -> Sequence[Event]:
    """The events that a reader of a thread receives until `until` is set. It reconnects after an outage."""
    events: list[Event] = []
    while True:
        follower = following.follow(
            replica.database.pool,
            replica.hub,
            following.StreamScope(ANN.tenant, thread_id),
            after=events[-1]["seq"] if events else 0,
            heartbeat=0.1,
        )
        try:
            async with aclosing(follower.frames()) as frames:
                async for batch in frames:
                    events += [json.loads(frame.json) for frame in batch or ()]
                    if (
                        not batch
                        and until.is_set()
                        and await _has_all_events(replica, thread_id, events)
                    ):
                        return events
        except DATABASE_UNAVAILABLE:
            continue
        finally:
            follower.close()


async def _has_all_events(replica: Replica, thread_id: ThreadId, events: Sequence[Event]) -> bool:
    """A quiet stream is not enough, because the database may have been unavailable."""
    head = await replica.database.pool.fetchval(
        "SELECT next_seq - 1 FROM event_heads WHERE thread_id = $1", thread_id
    )
    return (head or 0) == (events[-1]["seq"] if events else 0)


async def breaking_connections(url: str, until: asyncio.Event, chance: random.Random) -> None:
    """Terminates connections repeatedly: all busy ones and some idle ones."""
    connection = await asyncpg.connect(url)
    try:
        while not until.is_set():
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid() "
                "AND (state = 'active' OR random() < $1)",
                chance.choice([0.0, 0.1, 0.3]),
            )
            try:
                async with asyncio.timeout(chance.uniform(0.05, 0.3)):
                    await until.wait()
            except TimeoutError:
                continue
    finally:
        await connection.close()


async def logged_on(replica: Replica, thread_id: ThreadId) -> Sequence[Event]:
    scope = following.StreamScope(ANN.tenant, thread_id)
    frames, _, _ = await following.read_page(replica.database.pool, scope, 0, 100_000)
    return [json.loads(frame.json) for frame in frames]


def published_texts(events: Sequence[Event]) -> set[tuple[str, int, str]]:
    """Run, step and text of every complete message. Each occurs once, despite broken connections."""
    open_texts: dict[tuple[str, int], str] = {}
    whole: set[tuple[str, int, str]] = set()
    for event in events:
        key = (event["run_id"], event.get("step", 0))
        match event["event_type"]:
            case "step_start":
                open_texts[key] = ""
            case "stream_reset":
                whole -= {(*key, open_texts[key])}
                open_texts[key] = ""
            case "text_delta":
                open_texts[key] += event["delta"]
            case "inference_complete":
                whole.add((*key, open_texts[key]))
    return whole


async def logged_texts(replica: Replica, thread_id: ThreadId) -> dict[tuple[str, int, str], bool]:
    """The same for each message in the log, and whether it is complete."""
    async with replica.database.reading() as connection:
        log = await messages.page(
            connection,
            ANN.tenant,
            thread_id,
            MessageFilter(with_rolled_back=True),
            PageRequest(order=Order.ASC, limit=10_000),
        )
    return {
        (
            str(entry.message.run_id),
            (entry.message.step_index or 0) + 1,
            entry.message.text,
        ): entry.message.cut_short is None
        for entry in log
        if entry.message.role is Role.ASSISTANT
    }


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("connections", ["hold", "break"])
async def test_concurrent_commands_leave_consistent_rows_and_readers(
    database_url: str, seed: int, connections: str
) -> None:
    ask, work = Probe(name="ask"), Probe(name="work", effect="idempotent")
    agent = an_agent(ask.tool, work.tool, approval=["ask"])
    async with AsyncExitStack() as stack:
        first, second, failing_replica = [
            await stack.enter_async_context(
                open_replica(database_url, agent, talk_or_call, slots=5)
            )
            for _ in range(3)
        ]
        clients = ConcurrentClients([first, second, failing_replica], random.Random(seed))
        steady_replica, over = asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            readers = [
                group.create_task(events_read_by(replica, thread_id, over))
                for thread_id, replica in zip(clients.threads, [first, second] * 2, strict=True)
            ]
            if connections == "break":
                group.create_task(
                    breaking_connections(database_url, steady_replica, clients.chance)
                )
            await clients.run_all()
            clients.replicas.remove(failing_replica)
            await failing_replica.kill()
            await clients.run_all()
            steady_replica.set()
            await clients.cancel_until_all_are_done(first)
            over.set()
        assert await broken_invariants(database_url) == {}
        ends = await first.database.pool.fetch(
            "SELECT termination->>'type', count(*)::int FROM runs GROUP BY 1"
        )
        assert {end for end, _ in ends} == {"natural_end", "cancelled"}
        for thread_id, reader in zip(clients.threads, readers, strict=True):
            logged = await logged_on(first, thread_id)
            check_thread(logged)
            assert reader.result() == logged
            published, logged_complete = (
                published_texts(logged),
                await logged_texts(first, thread_id),
            )
            assert published <= logged_complete.keys()
            assert {text for text, is_whole in logged_complete.items() if is_whole} <= published
    assert await deadlocks(database_url) == 0
