"""The database goes away and comes back: runs wait for it, and none of them is blamed for it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from threading import Thread
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from app.domain.errors import DatabaseUnavailable
from app.domain.ids import CallId
from app.domain.runs.runs import RunStatus
from app.events.unsaved_bytes import MAX_UNSAVED_BYTES
from app.llm.scripted.model import Call, Gate, in_order, turn
from app.runtime.ports import Tool, ToolContext
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import Database
from app.storage.runs import claims
from app.tools.functions.decorator import tool
from app.workers.execution_context import ClaimedRun
from tests.support.conditions import eventually
from tests.support.forwarders import Forwarder, forwarding
from tests.support.house import PATIENCE, an_agent, of_type, replica, texts_of
from tests.support.probes import Probe
from tests.support.stored_runs import worker

pytestmark = pytest.mark.anyio

LOCK = "SELECT FROM workers FOR UPDATE"


@pytest.fixture
async def way(database_url: str) -> AsyncIterator[Forwarder]:
    async with forwarding(database_url) as forwarder:
        yield forwarder


async def logged(logs: Sequence[Mapping[str, Any]], event: str, times: int = 1) -> None:
    async def look() -> bool:
        return [entry["event"] for entry in logs].count(event) >= times

    await eventually(look)


async def test_what_was_said_meanwhile_is_said_once(way: Forwarder) -> None:
    before, after = Gate(), Gate()
    script = in_order(turn("one ", before, "two ", after, "three"))
    async with replica(way.url, an_agent(), script) as house:
        run = await house.start()
        await run.until("text_delta")
        await asyncio.wait_for(before.reached.wait(), PATIENCE)
        with capture_logs() as logs:
            await way.block()
            before.open.set()
            await asyncio.wait_for(after.reached.wait(), PATIENCE)
            await logged(logs, "flush_retried")
        await way.open()
        after.open.set()
        said = await run.finished()
        assert "".join(one["delta"] for one in of_type(said, "text_delta")) == "one two three"
        record = await run.now()
        assert (record.attempt, record.status) == (1, RunStatus.DONE)


async def test_a_result_that_came_meanwhile_is_kept(way: Forwarder) -> None:
    probe = Probe(held=True)
    script = in_order(turn(probe.call("c1")), turn("done"))
    async with replica(way.url, an_agent(probe.tool), script) as house:
        run = await house.start()
        await probe.was_reached()
        with capture_logs() as logs:
            await way.block()
            probe.open.set()
            await logged(logs, "heartbeat_missed")
        await way.open()
        await run.finished()
        assert texts_of(await run.log())[2:] == [("tool", "probe did it"), ("assistant", "done")]
    assert len(probe.handed) == 1


PIECE = "x" * 10_000
PIECES = 800


class Chatty:
    """A tool that shows eight megabytes, once it may, without looking whether anybody can keep up."""

    def __init__(self) -> None:
        self.shown = 0
        self.go = threading.Event()

    def show(self, ctx: ToolContext) -> None:
        ctx.stream_output(PIECE)
        self.shown += 1

    def as_coroutine(self) -> Tool:
        async def chatty(ctx: ToolContext) -> str:
            self.show(ctx)
            await asyncio.to_thread(self.go.wait)
            while self.shown < PIECES:
                self.show(ctx)
                await asyncio.sleep(0)  # noqa: TID251  as any tool awaits something now and then
            return "shown"

        return tool(effect="read")(chatty)

    def as_function(self) -> Tool:
        def chatty(ctx: ToolContext) -> str:
            self.show(ctx)
            self.go.wait()
            while self.shown < PIECES:
                self.show(ctx)
            return "shown"

        return tool(effect="read")(chatty)


@pytest.mark.parametrize("made", [Chatty.as_coroutine, Chatty.as_function])
async def test_a_tool_that_shows_much_meanwhile_waits(
    way: Forwarder, made: Callable[[Chatty], Tool]
) -> None:
    chatty = Chatty()
    script = in_order(turn(Call(tool="chatty", id=CallId("c1"))), turn("done"))
    async with replica(way.url, an_agent(made(chatty)), script) as house:
        run = await house.start()
        await run.until("tool_call_stream_delta")
        with capture_logs() as logs:
            await way.block()
            chatty.go.set()
            await logged(logs, "flush_retried", times=4)
            shown = chatty.shown * len(PIECE)
        await way.open()
        said = await run.finished()
    assert shown < 3 * MAX_UNSAVED_BYTES, "one flush under way, and as much again behind it"
    output = "".join(one["delta"] for one in of_type(said, "tool_call_stream_delta"))
    assert output == PIECES * PIECE


async def test_a_run_that_could_not_be_loaded_is_let_go_and_no_loss(way: Forwarder) -> None:
    async with replica(way.url, an_agent(), in_order(turn("Hello")), slots=1) as house:
        assert house.worker.reserve()
        run = await house.start(here=False)
        claimed = await claims.claim(
            house.database.pool, run.record.tenant, run.thread_id, run.id, house.me, PATIENCE
        )
        assert claimed is not None
        with capture_logs() as logs:
            await way.block()
            house.worker.launch(
                ClaimedRun(
                    record=claimed.record,
                    next_seq=claimed.next_message_seq,
                    previous_state=claimed.previous_state,
                )
            )
            await logged(logs, "run_not_released")
        await way.open()
        said = await run.finished()
        assert said[-1]["result"]["response"] == "Hello"
        assert (await run.now()).losses == 0
        assert {"execution_broken_off"} <= {entry["event"] for entry in logs}


async def test_a_process_that_ends_does_not_wait_for_it(way: Forwarder) -> None:
    async with replica(way.url, an_agent(), in_order(turn("Hello")), slots=1) as house:
        assert house.worker.reserve()
        run = await house.start(here=False)
        claimed = await claims.claim(
            house.database.pool, run.record.tenant, run.thread_id, run.id, house.me, PATIENCE
        )
        assert claimed is not None
        with capture_logs() as logs:
            await way.block()
            house.worker.launch(
                ClaimedRun(
                    record=claimed.record,
                    next_seq=claimed.next_message_seq,
                    previous_state=claimed.previous_state,
                )
            )
            await logged(logs, "run_not_released")
            await asyncio.wait_for(house.worker.stop(grace=PATIENCE), 5)
        await way.open()


async def test_a_worker_that_has_left_the_list_does_not_come_back(database_url: str) -> None:
    async with replica(database_url, an_agent(), in_order()) as house:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(house.liveness.beat())
            group.create_task(house.liveness.stop())
        await house.liveness.beat()
        assert await house.database.pool.fetchval("SELECT count(*) FROM workers") == 0


async def _lock_the_worker(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await asyncio.wait_for(connection.execute(LOCK), PATIENCE)
    finally:
        await connection.close()


async def _stand_still_in_a_transaction(database: Database, url: str, *, frozen: bool) -> None:
    """Hold a lock until somebody else has it, and go on; frozen, no turn of the loop is taken meanwhile."""
    async with database.transaction() as connection:
        await connection.execute(text(LOCK))
        if frozen:
            other = Thread(target=lambda: asyncio.run(_lock_the_worker(url)))
            other.start()
            other.join()
        else:
            await _lock_the_worker(url)
        await connection.execute(text(LOCK))


@pytest.mark.parametrize("frozen", [False, True])
async def test_whoever_stands_still_in_a_transaction_loses_its_locks(
    database_url: str, frozen: bool
) -> None:
    """A frozen process must not keep others from its rows; when it goes on, that is an outage to it."""
    database = await Database.open(database_url, DatabaseOptions(idle_timeout=0.2))
    try:
        await worker(database.pool)
        with pytest.raises(DatabaseUnavailable):
            await _stand_still_in_a_transaction(database, database_url, frozen=frozen)
    finally:
        await database.close()
