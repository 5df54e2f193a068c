"""Everybody at once on a few threads: whatever wins, every row and every reader agrees about it."""

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
from app.domain.threads.messages import Role
from app.domain.tickets.tickets import TicketStatus
from app.events import follow as following
from app.llm.scripted.model import Call, ScriptedTurn, turn
from app.runtime.ports import ModelRequest
from app.storage.postgres.database import DATABASE_UNAVAILABLE
from app.storage.runs import runs
from app.storage.threads import messages
from tests.support.conditions import eventually
from tests.support.event_order import check_thread
from tests.support.house import ANN, Event, Replica, Run, an_agent, replica
from tests.support.invariants import broken_invariants, deadlocks
from tests.support.probes import Probe

pytestmark = pytest.mark.anyio

THREADS = 4
AT_ONCE = 4
EACH = 20
ON_ACTIVE = [OnActive.ENQUEUE, OnActive.ENQUEUE, *OnActive]


def talk_or_call(request: ModelRequest) -> ScriptedTurn:
    """Does what the newest prompt says."""
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


class Crowd:
    """Clients that do what they like, each with the replica that it happens to reach."""

    def __init__(self, replicas: list[Replica], chance: random.Random) -> None:
        self.replicas = replicas
        self.chance = chance
        self.threads = [ThreadId(new_id()) for _ in range(THREADS)]
        self.runs: list[Run] = []

    def some_replica(self) -> Replica:
        return self.chance.choice(self.replicas)

    def some_run(self) -> Run:
        """More often a young one: the old ones are done."""
        place = min(int(self.chance.expovariate(0.3)), len(self.runs) - 1)
        return self.some_replica().same(self.runs[-1 - place])

    async def comes(self) -> None:
        async with asyncio.TaskGroup() as clients:
            for _ in range(AT_ONCE):
                clients.create_task(self._client())

    async def _client(self) -> None:
        for _ in range(EACH):
            with suppress(Refusal, *DATABASE_UNAVAILABLE):
                await self._something()

    async def _something(self) -> None:
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
                await self.some_run().cancel("somebody wished it")
            case _:
                return

    async def see_everything_end(self, through: Replica) -> None:
        """What waits is cancelled, which lets in what stands in line behind it."""

        async def all_done() -> bool:
            async with through.database.reading() as connection:
                records = await runs.page(
                    connection, ANN.tenant, RunFilter(), before=None, limit=1000
                )
            for record in records:
                if record.status is RunStatus.WAITING:
                    await Run(through, record).cancel("the end")
            return all(record.is_done for record in records)

        await eventually(all_done)


async def heard_on(house: Replica, thread_id: ThreadId, until: asyncio.Event) -> Sequence[Event]:
    """What a reader of a whole thread is shown until it is told to stop; cut off, it comes back."""
    said: list[Event] = []
    while True:
        follower = following.follow(
            house.database.pool,
            house.hub,
            following.StreamScope(ANN.tenant, thread_id),
            after=said[-1]["seq"] if said else 0,
            heartbeat=0.1,
        )
        try:
            async with aclosing(follower.frames()) as frames:
                async for heard in frames:
                    said += [json.loads(frame.json) for frame in heard or ()]
                    if not heard and until.is_set() and await _is_all(house, thread_id, said):
                        return said
        except DATABASE_UNAVAILABLE:
            continue
        finally:
            follower.close()


async def _is_all(house: Replica, thread_id: ThreadId, said: Sequence[Event]) -> bool:
    """Silence alone doesn't say so: the database may have been away for a moment."""
    head = await house.database.pool.fetchval(
        "SELECT next_seq - 1 FROM event_heads WHERE thread_id = $1", thread_id
    )
    return (head or 0) == (said[-1]["seq"] if said else 0)


async def breaking_connections(url: str, until: asyncio.Event, chance: random.Random) -> None:
    """Ends connections again and again: those that are at work, and some of the others."""
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


async def logged_on(house: Replica, thread_id: ThreadId) -> Sequence[Event]:
    scope = following.StreamScope(ANN.tenant, thread_id)
    frames, _ = await following.read_page(house.database.pool, scope, 0, 100_000)
    return [json.loads(frame.json) for frame in frames]


def texts_said(events: Sequence[Event]) -> set[tuple[str, int, str]]:
    """Run, step and text of every message that was said to its end: once, whatever broke meanwhile."""
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


async def texts_kept(house: Replica, thread_id: ThreadId) -> dict[tuple[str, int, str], bool]:
    """The same of what is in the log, and whether it is all that was to be said."""
    async with house.database.reading() as connection:
        log = await messages.page(
            connection,
            ANN.tenant,
            thread_id,
            after=None,
            before=None,
            descending=False,
            run_id=None,
            visibility=None,
            limit=10_000,
            with_rolled_back=True,
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
async def test_whoever_wins_all_rows_and_readers_agree(
    database_url: str, seed: int, connections: str
) -> None:
    ask, work = Probe(name="ask"), Probe(name="work", effect="idempotent")
    agent = an_agent(ask.tool, work.tool, approval=["ask"])
    async with AsyncExitStack() as stack:
        first, second, doomed = [
            await stack.enter_async_context(replica(database_url, agent, talk_or_call, slots=5))
            for _ in range(3)
        ]
        crowd = Crowd([first, second, doomed], random.Random(seed))
        calm, over = asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            readers = [
                group.create_task(heard_on(house, thread_id, over))
                for thread_id, house in zip(crowd.threads, [first, second] * 2, strict=True)
            ]
            if connections == "break":
                group.create_task(breaking_connections(database_url, calm, crowd.chance))
            await crowd.comes()
            crowd.replicas.remove(doomed)
            await doomed.kill()
            await crowd.comes()
            calm.set()
            await crowd.see_everything_end(first)
            over.set()
        assert await broken_invariants(database_url) == {}
        ends = await first.database.pool.fetch(
            "SELECT termination->>'type', count(*)::int FROM runs GROUP BY 1"
        )
        assert {end for end, _ in ends} == {"natural_end", "cancelled"}
        for thread_id, reader in zip(crowd.threads, readers, strict=True):
            logged = await logged_on(first, thread_id)
            check_thread(logged)
            assert reader.result() == logged
            said, kept = texts_said(logged), await texts_kept(first, thread_id)
            assert said <= kept.keys()
            assert {text for text, is_whole in kept.items() if is_whole} <= said
    assert await deadlocks(database_url) == 0
