"""What every relay between processes must do, on whatever wire: quick when it is there, harmless when not."""

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
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import Database
from app.storage.postgres.notifications import installation
from tests.support.following import following, log_unheard, say, scope_of
from tests.support.forwarders import Forwarder, forwarding
from tests.support.nats import NatsServer, nats_server
from tests.support.stored_runs import running
from tests.support.voices import PATIENCE, Voices, writing

pytestmark = pytest.mark.anyio

POLL = 0.3
NEVER = 3_600.0


class Carrier(Protocol):
    """A wire's other side, which a test can take away."""

    async def wire(self) -> Transport: ...

    async def leave(self) -> None: ...

    async def come_back(self) -> None: ...


@dataclass(slots=True)
class OverPostgres:
    """The connections that listen go by a way of their own."""

    url: str
    way: Forwarder
    stack: AsyncExitStack

    async def wire(self) -> Transport:
        options = DatabaseOptions(pool_size=2, hot_pool_size=3)
        database = await Database.open(self.url, options, listen_url=self.way.url)
        self.stack.push_async_callback(database.close)
        return NotifyTransport(database)

    async def leave(self) -> None:
        await self.way.block()

    async def come_back(self) -> None:
        await self.way.open()


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
async def carrier(
    request: pytest.FixtureRequest, database_url: str, database: Database
) -> AsyncIterator[Carrier]:
    async with AsyncExitStack() as stack:
        if request.param == "notify":
            way = await stack.enter_async_context(forwarding(database_url))
            yield OverPostgres(database_url, way, stack)
        else:
            yield OverNats(database, await stack.enter_async_context(nats_server()))


@dataclass(slots=True)
class Process:
    """What one process says and hears, with its relay at work."""

    voices: Voices
    wishes: list[str] = field(default_factory=list)
    work: "list[asyncio.Task[None]]" = field(default_factory=list)

    async def hears(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.voices.relay.hears.wait()


@asynccontextmanager
async def process(
    database: Database, wire: Transport, *, poll: float = NEVER, is_deaf: bool = False
) -> AsyncIterator[Process]:
    async with writing(database, wire=wire) as voices:
        opened = Process(voices)
        heard = {Topic.CANCEL: opened.wishes.append}
        opened.work.append(voices.tasks.create_task(voices.relay.listen(heard)))
        opened.work.append(voices.tasks.create_task(_catch_up(voices, poll)))
        try:
            if not is_deaf:
                await opened.hears()
            yield opened
        finally:
            for task in opened.work:
                task.cancel()


async def _catch_up(voices: Voices, poll: float) -> None:
    while True:
        await sleep(poll)
        await voices.relay.catch_up()


class LossyTransport:
    """A wire that carries what it likes of the events."""

    def __init__(self, wire: Transport, carries: Callable[[int], bool]) -> None:
        self._wire = wire
        self._carries = carries
        self._count = 0
        self.max_payload_bytes = wire.max_payload_bytes
        self.name = wire.name

    async def send(self, topic: Topic, hints: Sequence[Hint]) -> None:
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


# --- while it is there ----------------------------------------------------------------------------


async def test_what_one_process_says_the_other_hears_in_order(
    database: Database, carrier: Carrier
) -> None:
    run = await running(database.pool)
    wire = await carrier.wire()
    too_long_for_a_hint = "x" * (wire.max_payload_bytes + 1)
    async with (
        process(database, wire) as here,
        process(database, await carrier.wire()) as there,
        following(
            database, here.voices, scope_of(run), after=1, subscription=here.voices.listen(run)
        ) as near,
        following(
            database, there.voices, scope_of(run), after=1, subscription=there.voices.listen(run)
        ) as far,
    ):
        for place, text in enumerate(("short", "Grüße\n\n", too_long_for_a_hint, "short"), 1):
            await say(here.voices, run, text)
            assert await near.until(place) == [*range(2, place + 2)]
            assert await far.until(place) == [*range(2, place + 2)]
        await say(there.voices, run, "back")
        assert await near.until(5) == await far.until(5) == [2, 3, 4, 5, 6]
    assert near.heard == far.heard


async def test_nobody_misses_anything_while_both_say_much(
    database: Database, carrier: Carrier
) -> None:
    run = await running(database.pool)
    async with (
        process(database, await carrier.wire()) as here,
        process(database, await carrier.wire()) as there,
        following(database, here.voices, scope_of(run)) as near,
        following(database, there.voices, scope_of(run)) as far,
    ):

        async def speak(who: Process) -> None:
            for count in range(40):
                await say(who.voices, run, "x" * (1 + 300 * count))

        async with asyncio.TaskGroup() as tasks:
            hearing = [tasks.create_task(reader.until(81)) for reader in (near, far)]
            for who in (here, there):
                tasks.create_task(speak(who))
        assert [one.result() for one in hearing] == [[*range(1, 82)]] * 2
    assert near.heard == far.heard


async def test_a_wish_is_heard_by_all_its_sender_too(database: Database, carrier: Carrier) -> None:
    async with (
        process(database, await carrier.wire()) as here,
        process(database, await carrier.wire()) as there,
    ):
        await here.voices.relay.send_hints(Topic.CANCEL, [Hint("a-run", "acme\na-run\n")])
        async with asyncio.timeout(PATIENCE):
            while not (here.wishes and there.wishes):
                await sleep(0.01)
        assert here.wishes == there.wishes == ["acme\na-run\n"]


async def test_lost_hints_are_made_up_for_by_the_next_that_arrives(
    database: Database, carrier: Carrier
) -> None:
    run = await running(database.pool)
    lossy = LossyTransport(await carrier.wire(), lambda count: count % 3 == 0)
    async with (
        process(database, lossy) as here,
        process(database, await carrier.wire()) as there,
        following(
            database, there.voices, scope_of(run), after=1, subscription=there.voices.listen(run)
        ) as far,
    ):
        for place in range(1, 13):
            await say(here.voices, run, "x")
            if place % 3 == 0:
                assert await far.until(place) == [*range(2, place + 2)]


# --- while it is away -----------------------------------------------------------------------------


async def test_without_it_the_log_is_read_and_when_it_is_back_so_are_they(
    database: Database, carrier: Carrier
) -> None:
    run = await running(database.pool)
    async with (
        process(database, await carrier.wire()) as here,
        process(database, await carrier.wire(), poll=POLL) as there,
        following(
            database, there.voices, scope_of(run), after=1, subscription=there.voices.listen(run)
        ) as far,
    ):
        await say(here.voices, run, "live")
        await far.until(1)
        await carrier.leave()
        for place in range(2, 6):
            await say(here.voices, run, "read")
            assert await far.until(place) == [*range(2, place + 2)]
        assert not here.voices.relay.hears.is_set()
        assert not there.voices.relay.hears.is_set()
        await carrier.come_back()
        await here.hears()
        await there.hears()
        await say(here.voices, run, "live again")
        assert await far.until(6) == [*range(2, 8)]


async def test_what_was_missed_is_read_as_soon_as_it_is_back(
    database: Database, carrier: Carrier
) -> None:
    run = await running(database.pool)
    async with (
        process(database, await carrier.wire()) as there,
        following(
            database, there.voices, scope_of(run), after=1, subscription=there.voices.listen(run)
        ) as far,
    ):
        await carrier.leave()
        await log_unheard(database, run, 3)
        await carrier.come_back()
        assert await far.until(3) == [2, 3, 4]


async def test_a_process_that_starts_without_it_says_so_and_finds_it_later(
    database: Database, carrier: Carrier, capsys: pytest.CaptureFixture[str]
) -> None:
    run = await running(database.pool)
    wire = await carrier.wire()
    await carrier.leave()
    async with (
        process(database, wire, is_deaf=True) as alone,
        following(
            database, alone.voices, scope_of(run), after=1, subscription=alone.voices.listen(run)
        ) as reader,
    ):
        async with asyncio.timeout(PATIENCE):
            printed = ""
            while "relay_is_away" not in printed:
                printed += capsys.readouterr().out
                await sleep(0.01)
        await say(alone.voices, run, "to itself")
        assert await reader.until(1) == [2]
        assert not alone.voices.relay.hears.is_set()
        await carrier.come_back()
        await alone.hears()
        printed += capsys.readouterr().out
    assert printed.count("relay_is_away") == printed.count("relay_is_back") == 1
