"""A run resumes in the process that stored the decision, and exactly once despite failures there."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import asyncpg
import pytest
from structlog.testing import capture_logs

from app.commands.tickets.decide import decide
from app.domain.claims.claimed_run import ClaimedRun
from app.domain.errors import Conflict, Invalid, NotFound
from app.domain.runs.runs import RunStatus
from app.domain.tickets.tickets import TicketStatus
from app.llm.scripted.scripts import SCRIPTS
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Connection
from app.storage.runs.runs import RunKey
from app.workers.direct_start import decide_and_execute, execute_here
from app.workers.periodic.sweeper import Sweeper
from app.workers.worker import Worker
from tests.support.conditions import eventually
from tests.support.forwarders import Forwarder, forwarding
from tests.support.isolated_workers import no_outages
from tests.support.probes import Probe
from tests.support.replicas import (
    ANN,
    TIMEOUT_SECONDS,
    Replica,
    Run,
    an_agent,
    decision,
    of_type,
    open_replica,
)

pytestmark = pytest.mark.anyio

DECIDING = b"INSERT INTO decisions"


@asynccontextmanager
async def replica_with_approval(url: str, *probes: Probe, slots: int = 2) -> AsyncIterator[Replica]:
    """Its model makes the calls that the prompt spells out. Calls of `guarded` need an approval."""
    catalog = an_agent(*(probe.tool for probe in probes), approval=["guarded"])
    async with open_replica(url, catalog, SCRIPTS["plain"], slots=slots) as replica:
        yield replica


@pytest.fixture
def guarded() -> Probe:
    return Probe(name="guarded")


@pytest.fixture
async def forwarder(database_url: str) -> AsyncIterator[Forwarder]:
    async with forwarding(database_url) as forwarder:
        yield forwarder


async def suspended_run(replica: Replica) -> tuple[Run, str]:
    """A suspended run and the id of its ticket. Its slot is free again."""
    run = await replica.start("CALL guarded {}")
    await run.finished()
    await idle(replica)
    [ticket] = await run.tickets()
    return run, ticket.id


async def idle(replica: Replica) -> None:
    """Wait until the replica executes no run."""

    async def is_idle() -> bool:
        return replica.worker.executing == 0

    await eventually(is_idle)


async def queued_deliveries(replica: Replica) -> int:
    """Deliveries that are still queued."""
    count: int = await replica.database.pool.fetchval("SELECT count(*) FROM pgq.pgqueuer")
    return count


def free_slots(worker: Worker) -> int:
    reserved = 0
    while worker.slots.reserve():
        reserved += 1
    for _ in range(reserved):
        worker.slots.free()
    return reserved


def claim_bytes(replica: Replica) -> bytes:
    """Bytes that only a claim sends: the id of the new owner, then that there is no id of a delivery."""
    return replica.me.encode() + b"\xff\xff\xff\xff"


async def assert_resumed_once(run: Run, probe: Probe) -> None:
    """One more activation, which applies the decision and finishes the run."""
    emitted = await run.finished(2)
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert len(of_type(emitted, "run_start")) == 2
    assert len(of_type(emitted, "tool_call_resumed")) == 1
    assert len(probe.handed) == 1


async def test_a_run_is_resumed_directly_without_a_delivery(
    database_url: str, guarded: Probe
) -> None:
    async with replica_with_approval(database_url, guarded) as replica:
        run, ticket = await suspended_run(replica)
        await replica.take_nothing_new()
        await run.decide(ticket, "approve")
        assert await queued_deliveries(replica) == 0
        await assert_resumed_once(run, guarded)


async def test_no_statement_about_a_run_is_repeated_while_it_is_decided_and_resumed(
    database_url: str, guarded: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed: list[tuple[str, Sequence[Any]]] = []
    real: Callable[..., Awaitable[Any]] = getattr(asyncpg.Connection, "_execute")  # noqa: B009

    async def recorded(
        self: Any, query: str, args: Sequence[Any], *rest: Any, **options: Any
    ) -> Any:
        executed.append((query, args))
        return await real(self, query, args, *rest, **options)

    async with replica_with_approval(database_url, guarded) as replica:
        run, ticket = await suspended_run(replica)
        answers = [decision(ticket, "approve")]
        monkeypatch.setattr(asyncpg.Connection, "_execute", recorded)
        await decide_and_execute(replica.ctx, replica.worker, ANN, run.id, answers)
        await idle(replica)
        monkeypatch.undo()
        await assert_resumed_once(run, guarded)
    about_run = {run.id, run.thread_id, ticket}
    # Statements of many runs, which have arrays of ids, commit new rows each time.
    repeated = Counter(query for query, args in executed if about_run & {*map(str, args)})
    assert [query for query, times in repeated.items() if times > 1] == []
    read, write = repeated
    assert ("FROM runs" in read, "FOR NO KEY UPDATE" in read) == (True, False)
    written = ("INTO decisions", "UPDATE tickets", "UPDATE runs", "INTO events")
    assert [part in write for part in written] == [True] * len(written)
    assert "tool_calls" in write


async def test_a_process_without_a_worker_leaves_the_run_to_others(
    database_url: str, guarded: Probe
) -> None:
    async with replica_with_approval(database_url, guarded) as replica:
        run, ticket = await suspended_run(replica)
        answer = decision(ticket, "approve")
        await execute_here(None, partial(decide, replica.ctx, ANN, run.id, [answer]))
        await assert_resumed_once(run, guarded)


async def test_a_process_without_a_free_slot_leaves_the_run_to_others(
    database_url: str, guarded: Probe
) -> None:
    held = Probe(name="held", held=True)
    async with replica_with_approval(database_url, guarded, held, slots=1) as replica:
        run, ticket = await suspended_run(replica)
        busy = await replica.start("CALL held {}")
        await held.was_reached()
        await run.decide(ticket, "approve")
        assert await queued_deliveries(replica) == 1
        async with replica_with_approval(database_url, guarded, held) as other:
            await assert_resumed_once(other.same(run), guarded)
        held.open.set()
        await busy.finished()


async def test_a_decision_claims_its_run_in_the_same_commit(
    database_url: str, guarded: Probe
) -> None:
    async with replica_with_approval(database_url, guarded) as replica:
        run, ticket = await suspended_run(replica)
        seen: list[str] = []

        async def claim(connection: Connection, key: RunKey) -> ClaimedRun | None:
            claimed = await replica.worker.claim_in(connection, key)
            seen.append(await replica.database.pool.fetchval("SELECT status FROM runs"))
            return claimed

        assert replica.worker.slots.reserve()
        answer = decision(ticket, "approve")
        decided = await decide(replica.ctx, ANN, run.id, [answer], deliver=False, claim=claim)
        assert seen == ["waiting"]
        assert decided.to_claim is None
        assert decided.claimed is not None
        owned = await replica.database.pool.fetchrow("SELECT status, owner, attempt FROM runs")
        assert owned is not None
        assert tuple(owned) == ("running", replica.me, 2)
        assert await queued_deliveries(replica) == 0
        replica.worker.launch(decided.claimed)
        await assert_resumed_once(run, guarded)


async def test_a_decision_that_fails_after_its_claim_changes_nothing(
    database_url: str, guarded: Probe
) -> None:
    async with replica_with_approval(database_url, guarded) as replica:
        run, ticket = await suspended_run(replica)

        async def claim(connection: Connection, key: RunKey) -> ClaimedRun | None:
            assert await replica.worker.claim_in(connection, key) is not None
            raise LookupError

        answer = decision(ticket, "approve")
        with pytest.raises(LookupError):
            await decide(replica.ctx, ANN, run.id, [answer], deliver=False, claim=claim)
        record = await run.now()
        assert (record.status, record.attempt) == (RunStatus.WAITING, 1)
        await run.decide(ticket, "approve")
        await assert_resumed_once(run, guarded)


async def test_a_decision_whose_claim_gets_nothing_enqueues_a_delivery(
    database_url: str, guarded: Probe
) -> None:
    async def claim(connection: Connection, key: RunKey) -> ClaimedRun | None:
        return None

    async with replica_with_approval(database_url, guarded) as replica:
        run, ticket = await suspended_run(replica)
        answer = decision(ticket, "approve")
        decided = await decide(replica.ctx, ANN, run.id, [answer], deliver=False, claim=claim)
        assert (decided.claimed, decided.to_claim) == (None, None)
        await assert_resumed_once(run, guarded)


async def test_the_sweeper_delivers_a_run_whose_process_died_after_the_decision(
    database_url: str, guarded: Probe
) -> None:
    async with replica_with_approval(database_url, guarded) as first:
        run, ticket = await suspended_run(first)
        await first.take_nothing_new()
        await decide(first.ctx, ANN, run.id, [decision(ticket, "approve")], deliver=False)
        await first.kill()
    async with replica_with_approval(database_url, guarded) as second:
        run = second.same(run)
        await run.until("run_start", 2)
        await assert_resumed_once(run, guarded)
        assert (await run.now()).attempt == 2


async def test_the_sweeper_waits_before_it_delivers_a_decided_run(
    database_url: str, guarded: Probe
) -> None:
    async with replica_with_approval(database_url, guarded) as replica:
        run, ticket = await suspended_run(replica)
        await replica.take_nothing_new()
        await decide(replica.ctx, ANN, run.id, [decision(ticket, "approve")], deliver=False)
        slow_sweeper, fast_sweeper = (
            Sweeper(
                replica.database,
                replica.registry,
                interval=interval,
                heartbeat_timeout=TIMEOUT_SECONDS,
                outage_allowance=no_outages(),
            )
            for interval in (60.0, 0.0)
        )
        assert (await slow_sweeper.run_once(), await queued_deliveries(replica)) == (0, 0)
        assert (await fast_sweeper.run_once(), await queued_deliveries(replica)) == (1, 1)
        assert (await fast_sweeper.run_once(), await queued_deliveries(replica)) == (0, 1)


@pytest.mark.parametrize("arrives", [False, True], ids=["lost", "landed"])
async def test_a_claim_without_a_reply_loses_no_decision_and_no_slot(
    forwarder: Forwarder, guarded: Probe, arrives: bool
) -> None:
    """A run that was lost before is claimed after the decision's commit."""
    async with replica_with_approval(forwarder.url, guarded) as replica:
        run, ticket = await suspended_run(replica)
        await replica.database.pool.execute("UPDATE runs SET losses = 1")
        break_at = forwarder.lose_reply_to if arrives else forwarder.lose
        break_at(claim_bytes(run.replica))
        with capture_logs() as logs:
            decided = await run.decide(ticket, "approve")
        assert "run_not_claimed" in {entry["event"] for entry in logs}
        assert forwarder.cuts == 1
        assert not decided.results[0].is_duplicate
        assert free_slots(replica.worker) == 2
        await assert_resumed_once(run, guarded)
        assert (await run.now()).attempt == (3 if arrives else 2)


@pytest.mark.parametrize("arrives", [False, True], ids=["lost", "landed"])
async def test_a_decision_without_a_reply_from_the_database_may_be_sent_again(
    forwarder: Forwarder, guarded: Probe, arrives: bool
) -> None:
    async with replica_with_approval(forwarder.url, guarded) as replica:
        run, ticket = await suspended_run(replica)
        break_at = forwarder.lose_reply_to if arrives else forwarder.lose
        break_at(DECIDING)
        with pytest.raises(DATABASE_UNAVAILABLE):
            await run.decide(ticket, "approve")
        assert forwarder.cuts == 1
        assert free_slots(replica.worker) == 2
        again = await run.decide(ticket, "approve")
        assert again.results[0].is_duplicate is arrives
        await assert_resumed_once(run, guarded)


async def test_a_refused_batch_frees_its_slot(database_url: str, guarded: Probe) -> None:
    held = Probe(name="held", held=True)
    async with replica_with_approval(database_url, guarded, held) as replica:
        run, ticket = await suspended_run(replica)
        with pytest.raises(NotFound):
            await run.decide("nothing", "approve")
        with pytest.raises(Invalid):
            await run.decide(ticket, "edit", arguments={"text": 5})
        assert [one.status for one in await run.tickets()] == [TicketStatus.OPEN]
        assert (await run.now()).status is RunStatus.WAITING

        await run.decide(ticket, "approve")
        await assert_resumed_once(run, guarded)
        await run.decide(ticket, "approve")
        with pytest.raises(Conflict):
            await run.decide(ticket, "reject")

        both = [await replica.start("CALL held {}") for _ in range(2)]
        for busy in both:
            await busy.until("inference_complete")
        assert replica.worker.executing == 2
        held.open.set()
        for busy in both:
            await busy.finished()


async def test_a_run_that_another_worker_has_claimed_frees_the_slot(
    database_url: str, guarded: Probe
) -> None:
    held = Probe(name="guarded", held=True)
    async with (
        replica_with_approval(database_url, held) as replica,
        replica_with_approval(database_url, held) as other,
    ):
        run, ticket = await suspended_run(replica)
        await run.decide(ticket, "approve")
        await held.was_reached()
        record = run.record
        key = RunKey(record.tenant, record.thread_id, record.id, record.attempt)
        assert other.worker.slots.reserve()
        assert not await other.worker.claim_and_launch(key, None)
        assert free_slots(other.worker) == 2
        held.open.set()
        await assert_resumed_once(run, held)


async def test_a_delivery_from_before_the_last_claim_does_not_resume_a_waiting_run(
    database_url: str, guarded: Probe
) -> None:
    async with replica_with_approval(database_url, guarded) as replica:
        run, ticket = await suspended_run(replica)
        before = await run.now()
        stale = RunKey(before.tenant, before.thread_id, before.id, before.attempt - 1)
        assert replica.worker.slots.reserve()
        assert not await replica.worker.claim_and_launch(stale, None)
        after = await run.now()
        assert (after.status, after.attempt) == (RunStatus.WAITING, before.attempt)
        await run.decide(ticket, "approve")
        await assert_resumed_once(run, guarded)
