"""A database outage: runs wait for its end, and it doesn't count as a loss of theirs."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from threading import Thread
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from app.domain.claims.claimed_run import ClaimedRun
from app.domain.errors import DatabaseUnavailable
from app.domain.ids import CallId
from app.domain.runs.runs import RunStatus
from app.events.unsaved_bytes import MAX_UNSAVED_BYTES
from app.llm.scripted.model import Call, Gate, in_order, turn
from app.runtime.ports.tool_context import ToolContext
from app.runtime.ports.tools import Tool
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import Database
from app.storage.runs import claims
from app.tools.functions.decorator import tool
from tests.support.conditions import eventually
from tests.support.forwarders import Forwarder, forwarding
from tests.support.probes import Probe
from tests.support.replicas import TIMEOUT_SECONDS, an_agent, of_type, open_replica, texts_of
from tests.support.stored_runs import worker

pytestmark = pytest.mark.anyio

LOCK = "SELECT FROM workers FOR UPDATE"


@pytest.fixture
async def forwarder(database_url: str) -> AsyncIterator[Forwarder]:
    async with forwarding(database_url) as forwarder:
        yield forwarder


async def logged(logs: Sequence[Mapping[str, Any]], event: str, times: int = 1) -> None:
    async def is_logged() -> bool:
        return [entry["event"] for entry in logs].count(event) >= times

    await eventually(is_logged)


async def test_text_emitted_during_an_outage_is_published_once(forwarder: Forwarder) -> None:
    before, after = Gate(), Gate()
    script = in_order(turn("one ", before, "two ", after, "three"))
    async with open_replica(forwarder.url, an_agent(), script) as replica:
        run = await replica.start()
        await run.until("text_delta")
        await asyncio.wait_for(before.reached.wait(), TIMEOUT_SECONDS)
        with capture_logs() as logs:
            await forwarder.block()
            before.open.set()
            await asyncio.wait_for(after.reached.wait(), TIMEOUT_SECONDS)
            await logged(logs, "flush_retried")
        await forwarder.open()
        after.open.set()
        emitted = await run.finished()
        assert "".join(one["delta"] for one in of_type(emitted, "text_delta")) == "one two three"
        record = await run.now()
        assert (record.attempt, record.status) == (1, RunStatus.DONE)


async def test_a_tool_result_during_an_outage_is_stored(forwarder: Forwarder) -> None:
    probe = Probe(held=True)
    script = in_order(turn(probe.call("c1")), turn("done"))
    async with open_replica(forwarder.url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        await probe.was_reached()
        with capture_logs() as logs:
            await forwarder.block()
            probe.open.set()
            await logged(logs, "heartbeat_missed")
        await forwarder.open()
        await run.finished()
        assert texts_of(await run.log())[2:] == [("tool", "probe did it"), ("assistant", "done")]
    assert len(probe.handed) == 1


PIECE = "x" * 10_000
PIECES = 800


class FloodingTool:
    """A tool that emits eight megabytes once the gate opens, without waiting for them to be saved."""

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
                await asyncio.sleep(0)  # noqa: TID251  any real tool awaits something now and then
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


@pytest.mark.parametrize("made", [FloodingTool.as_coroutine, FloodingTool.as_function])
async def test_a_tool_with_large_output_waits_during_an_outage(
    forwarder: Forwarder, made: Callable[[FloodingTool], Tool]
) -> None:
    chatty = FloodingTool()
    script = in_order(turn(Call(tool="chatty", id=CallId("c1"))), turn("done"))
    async with open_replica(forwarder.url, an_agent(made(chatty)), script) as replica:
        run = await replica.start()
        await run.until("tool_call_stream_delta")
        with capture_logs() as logs:
            await forwarder.block()
            chatty.go.set()
            await logged(logs, "flush_retried", times=4)
            shown = chatty.shown * len(PIECE)
        await forwarder.open()
        emitted = await run.finished()
    assert shown < 3 * MAX_UNSAVED_BYTES, "one flush in progress, and as many bytes behind it"
    output = "".join(one["delta"] for one in of_type(emitted, "tool_call_stream_delta"))
    assert output == PIECES * PIECE


async def test_a_run_that_cannot_be_loaded_in_an_outage_is_released_without_a_loss(
    forwarder: Forwarder,
) -> None:
    async with open_replica(forwarder.url, an_agent(), in_order(turn("Hello")), slots=1) as replica:
        assert replica.worker.slots.reserve()
        run = await replica.start(here=False)
        claimed = await claims.claim(
            replica.database.pool,
            run.record.tenant,
            run.thread_id,
            run.id,
            replica.me,
            TIMEOUT_SECONDS,
        )
        assert claimed is not None
        with capture_logs() as logs:
            await forwarder.block()
            replica.worker.launch(
                ClaimedRun(
                    record=claimed.record,
                    next_seq=claimed.next_message_seq,
                    previous_state=claimed.previous_state,
                )
            )
            await logged(logs, "run_not_released")
        await forwarder.open()
        emitted = await run.finished()
        assert emitted[-1]["result"]["response"] == "Hello"
        assert (await run.now()).losses == 0
        assert {"execution_interrupted_by_outage"} <= {entry["event"] for entry in logs}


async def test_a_process_that_stops_does_not_wait_for_the_outage_to_end(
    forwarder: Forwarder,
) -> None:
    async with open_replica(forwarder.url, an_agent(), in_order(turn("Hello")), slots=1) as replica:
        assert replica.worker.slots.reserve()
        run = await replica.start(here=False)
        claimed = await claims.claim(
            replica.database.pool,
            run.record.tenant,
            run.thread_id,
            run.id,
            replica.me,
            TIMEOUT_SECONDS,
        )
        assert claimed is not None
        with capture_logs() as logs:
            await forwarder.block()
            replica.worker.launch(
                ClaimedRun(
                    record=claimed.record,
                    next_seq=claimed.next_message_seq,
                    previous_state=claimed.previous_state,
                )
            )
            await logged(logs, "run_not_released")
            await asyncio.wait_for(replica.worker.stop(grace=TIMEOUT_SECONDS), 5)
        await forwarder.open()


async def test_a_worker_that_removed_its_row_does_not_insert_it_again(database_url: str) -> None:
    async with open_replica(database_url, an_agent(), in_order()) as replica:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(replica.heartbeat.write())
            group.create_task(replica.heartbeat.stop())
        await replica.heartbeat.write()
        assert await replica.database.pool.fetchval("SELECT count(*) FROM workers") == 0


async def _lock_the_worker(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await asyncio.wait_for(connection.execute(LOCK), TIMEOUT_SECONDS)
    finally:
        await connection.close()


async def _hold_lock_until_another_has_it(database: Database, url: str, *, frozen: bool) -> None:
    """Holds a lock until another connection has it. If `frozen`, the event loop is blocked meanwhile."""
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
async def test_a_stalled_transaction_loses_its_locks(database_url: str, frozen: bool) -> None:
    """A frozen process must not block others; when it continues, it sees a database outage."""
    database = await Database.open(database_url, DatabaseOptions(idle_timeout=0.2))
    try:
        await worker(database.pool)
        with pytest.raises(DatabaseUnavailable):
            await _hold_lock_until_another_has_it(database, database_url, frozen=frozen)
    finally:
        await database.close()
