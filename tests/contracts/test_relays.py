"""What every relay between processes must do, over each transport, connected or not."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import pytest

from app.clock import sleep
from app.events.fanout.nats import NatsTransport
from app.events.fanout.notify import NotifyTransport
from app.events.fanout.relay import Handler, Hint, Topic, Transport
from app.events.sse_encoding import EventBatch
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import Database
from app.storage.postgres.notifications import installation
from tests.support.emitters import TIMEOUT_SECONDS, Emitters, writing
from tests.support.following import NOW, emit, following, log_unpublished, scope_of
from tests.support.forwarders import Forwarder, forwarding
from tests.support.nats import NatsServer, nats_server
from tests.support.stored_runs import deltas, running

pytestmark = pytest.mark.anyio

POLL = 0.3
NEVER = 3_600.0


class TransportServer(Protocol):
    """A transport whose server a test can take away."""

    async def wire(self) -> Transport: ...

    async def leave(self) -> None: ...

    async def come_back(self) -> None: ...


@dataclass(slots=True)
class OverPostgres:
    """LISTEN connections go through a forwarder that a test can block."""

    url: str
    forwarder: Forwarder
    stack: AsyncExitStack

    async def wire(self) -> Transport:
        options = DatabaseOptions(pool_size=2, hot_pool_size=3)
        database = await Database.open(self.url, options, listen_url=self.forwarder.url)
        self.stack.push_async_callback(database.close)
        return NotifyTransport(database)

    async def leave(self) -> None:
        await self.forwarder.block()

    async def come_back(self) -> None:
        await self.forwarder.open()


@dataclass(slots=True)
class OverNats:
    database: Database
    server: NatsServer

    async def wire(self) -> Transport:
        return NatsTransport(self.server.url, await installation(self.database.pool))

    async def leave(self) -> None:
        await self.server.kill()

    async def come_back(self) -> None:
        await self.server.start()


@pytest.fixture(params=["notify", "nats"])
async def server(
    request: pytest.FixtureRequest, database_url: str, database: Database
) -> AsyncIterator[TransportServer]:
    async with AsyncExitStack() as stack:
        if request.param == "notify":
            forwarder = await stack.enter_async_context(forwarding(database_url))
            yield OverPostgres(database_url, forwarder, stack)
        else:
            yield OverNats(database, await stack.enter_async_context(nats_server()))


@dataclass(slots=True)
class Process:
    """One process with a running relay, and the cancel requests that it received."""

    emitters: Emitters
    cancel_requests: list[str] = field(default_factory=list)
    work: "list[asyncio.Task[None]]" = field(default_factory=list)

    async def connected(self) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await self.emitters.relay.connected.wait()


@asynccontextmanager
async def process(
    database: Database, wire: Transport, *, poll: float = NEVER, is_disconnected: bool = False
) -> AsyncIterator[Process]:
    async with writing(database, wire=wire) as emitters:
        opened = Process(emitters)
        received = {Topic.CANCEL: opened.cancel_requests.append}
        opened.work.append(emitters.tasks.create_task(emitters.relay.listen(received)))
        opened.work.append(emitters.tasks.create_task(_catch_up(emitters, poll)))
        try:
            if not is_disconnected:
                await opened.connected()
            yield opened
        finally:
            for task in opened.work:
                task.cancel()


async def _catch_up(emitters: Emitters, poll: float) -> None:
    while True:
        await sleep(poll)
        await emitters.relay.catch_up()


class LossyTransport:
    """A transport that drops the hints that `carries` does not select."""

    def __init__(self, wire: Transport, carries: Callable[[int], bool]) -> None:
        self._wire = wire
        self._carries = carries
        self._count = 0
        self.messages: list[int] = []
        """How many hints each message had that was to be sent."""
        self.max_payload_bytes = wire.max_payload_bytes
        self.name = wire.name

    async def send(self, topic: Topic, hints: Sequence[Hint]) -> None:
        self.messages.append(len(hints))
        carried = [hint for hint in hints if self._takes()]
        if carried:
            await self._wire.send(topic, carried)

    def _takes(self) -> bool:
        self._count += 1
        return self._carries(self._count)

    async def listen(
        self, handlers: Mapping[Topic, Handler], *, on_connected: Callable[[], None]
    ) -> None:
        await self._wire.listen(handlers, on_connected=on_connected)


# --- while the transport is connected -------------------------------------------------------------


async def test_another_process_receives_events_in_order(
    database: Database, server: TransportServer
) -> None:
    run = await running(database.pool)
    wire = await server.wire()
    longer_than_a_hint = "x" * (wire.max_payload_bytes + 1)
    async with (
        process(database, wire) as here,
        process(database, await server.wire()) as there,
        following(
            database, here.emitters, scope_of(run), after=1, subscription=here.emitters.listen(run)
        ) as near,
        following(
            database,
            there.emitters,
            scope_of(run),
            after=1,
            subscription=there.emitters.listen(run),
        ) as far,
    ):
        for place, text in enumerate(("short", "Grüße\n\n", longer_than_a_hint, "short"), 1):
            await emit(here.emitters, run, text)
            assert await near.until(place) == [*range(2, place + 2)]
            assert await far.until(place) == [*range(2, place + 2)]
        await emit(there.emitters, run, "back")
        assert await near.until(5) == await far.until(5) == [2, 3, 4, 5, 6]
    assert near.whole_frames == far.whole_frames


async def test_two_busy_processes_receive_all_events_of_each_other(
    database: Database, server: TransportServer
) -> None:
    run = await running(database.pool)
    async with (
        process(database, await server.wire()) as here,
        process(database, await server.wire()) as there,
        following(database, here.emitters, scope_of(run)) as near,
        following(database, there.emitters, scope_of(run)) as far,
    ):

        async def emit_many(process: Process) -> None:
            for count in range(40):
                await emit(process.emitters, run, "x" * (1 + 300 * count))

        async with asyncio.TaskGroup() as tasks:
            reading = [tasks.create_task(reader.until(81)) for reader in (near, far)]
            for one in (here, there):
                tasks.create_task(emit_many(one))
        assert [one.result() for one in reading] == [[*range(1, 82)]] * 2
    assert near.whole_frames == far.whole_frames


async def test_a_cancel_hint_reaches_every_process_including_its_sender(
    database: Database, server: TransportServer
) -> None:
    async with (
        process(database, await server.wire()) as here,
        process(database, await server.wire()) as there,
    ):
        await here.emitters.relay.send_hints(Topic.CANCEL, [Hint("a-run", "acme\na-run\n")])
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not (here.cancel_requests and there.cancel_requests):
                await sleep(0.01)
        assert here.cancel_requests == there.cancel_requests == ["acme\na-run\n"]


async def test_the_next_hint_makes_up_for_lost_hints(
    database: Database, server: TransportServer
) -> None:
    run = await running(database.pool)
    lossy = LossyTransport(await server.wire(), lambda count: count % 3 == 0)
    async with (
        process(database, lossy) as here,
        process(database, await server.wire()) as there,
        following(
            database,
            there.emitters,
            scope_of(run),
            after=1,
            subscription=there.emitters.listen(run),
        ) as far,
    ):
        for place in range(1, 13):
            await emit(here.emitters, run, "x")
            if place % 3 == 0:
                assert await far.until(place) == [*range(2, place + 2)]


async def test_a_process_without_others_sends_no_hints(
    database: Database, server: TransportServer
) -> None:
    run = await running(database.pool)
    wire = LossyTransport(await server.wire(), lambda _: True)
    async with process(database, wire) as here:
        here.emitters.relay.set_has_others(False)
        async with following(database, here.emitters, scope_of(run), after=1) as near:
            await emit(here.emitters, run, "alone")
            assert await near.until(1) == [2]
        here.emitters.relay.set_has_others(True)
        async with (
            process(database, await server.wire()) as there,
            following(
                *(database, there.emitters, scope_of(run)),
                after=2,
                subscription=there.emitters.listen(run),
            ) as far,
        ):
            await emit(here.emitters, run, "to another")
            assert await far.until(1) == [3]
    assert wire.messages == [1]


async def test_a_process_that_is_not_known_yet_reads_the_log(
    database: Database, server: TransportServer
) -> None:
    """The other process learns of it with its next heartbeat, and sends no hints before."""
    run = await running(database.pool)
    async with (
        process(database, await server.wire()) as here,
        process(database, await server.wire()) as new,
        following(
            *(database, new.emitters, scope_of(run)),
            after=1,
            subscription=new.emitters.listen(run),
        ) as far,
    ):
        here.emitters.relay.set_has_others(False)
        await emit(here.emitters, run, "one", "two")
        await new.emitters.relay.catch_up()
        assert await far.until(2) == [2, 3]
        await emit(here.emitters, run, "three")
        here.emitters.relay.set_has_others(True)
        await emit(here.emitters, run, "four")
        assert await far.until(4) == [2, 3, 4, 5]


async def test_hints_that_follow_each_other_closely_are_sent_as_one_message(
    database: Database, server: TransportServer
) -> None:
    run = await running(database.pool)
    wire = LossyTransport(await server.wire(), lambda _: True)
    async with (
        process(database, wire) as here,
        process(database, await server.wire()) as there,
        following(
            *(database, there.emitters, scope_of(run)),
            after=1,
            subscription=there.emitters.listen(run),
        ) as far,
    ):
        await log_unpublished(database, run, 3)
        for seq in (2, 3, 4):
            batch = EventBatch(run.tenant, run.thread_id, run.id, seq, deltas("x"), NOW())
            here.emitters.relay.announce(batch)
        assert await far.until(3) == [2, 3, 4]
    assert wire.messages == [3]


# --- while the transport is away ------------------------------------------------------------------


async def test_without_the_transport_readers_poll_the_log_until_it_is_back(
    database: Database, server: TransportServer
) -> None:
    run = await running(database.pool)
    async with (
        process(database, await server.wire()) as here,
        process(database, await server.wire(), poll=POLL) as there,
        following(
            database,
            there.emitters,
            scope_of(run),
            after=1,
            subscription=there.emitters.listen(run),
        ) as far,
    ):
        await emit(here.emitters, run, "live")
        await far.until(1)
        await server.leave()
        for place in range(2, 6):
            await emit(here.emitters, run, "read")
            assert await far.until(place) == [*range(2, place + 2)]
        assert not here.emitters.relay.connected.is_set()
        assert not there.emitters.relay.connected.is_set()
        await server.come_back()
        await here.connected()
        await there.connected()
        await emit(here.emitters, run, "live again")
        assert await far.until(6) == [*range(2, 8)]


async def test_missed_events_are_read_when_the_transport_is_back(
    database: Database, server: TransportServer
) -> None:
    run = await running(database.pool)
    async with (
        process(database, await server.wire()) as there,
        following(
            database,
            there.emitters,
            scope_of(run),
            after=1,
            subscription=there.emitters.listen(run),
        ) as far,
    ):
        await server.leave()
        await log_unpublished(database, run, 3)
        await server.come_back()
        assert await far.until(3) == [2, 3, 4]


async def test_a_process_started_without_the_transport_logs_that_and_connects_later(
    database: Database, server: TransportServer, capsys: pytest.CaptureFixture[str]
) -> None:
    run = await running(database.pool)
    wire = await server.wire()
    await server.leave()
    async with (
        process(database, wire, is_disconnected=True) as alone,
        following(
            database,
            alone.emitters,
            scope_of(run),
            after=1,
            subscription=alone.emitters.listen(run),
        ) as reader,
    ):
        async with asyncio.timeout(TIMEOUT_SECONDS):
            printed = ""
            while "relay_disconnected" not in printed:
                printed += capsys.readouterr().out
                await sleep(0.01)
        await emit(alone.emitters, run, "to itself")
        assert await reader.until(1) == [2]
        assert not alone.emitters.relay.connected.is_set()
        await server.come_back()
        await alone.connected()
        printed += capsys.readouterr().out
    assert printed.count("relay_disconnected") == printed.count("relay_reconnected") == 1
