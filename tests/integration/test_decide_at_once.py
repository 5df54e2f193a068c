"""A decision without locks between its read and its write: it takes effect once, or leaves all to `decide`."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from app.commands.tickets.decide_at_once import decide_at_once
from app.domain.runs.runs import RunStatus
from app.domain.tickets.tickets import TicketStatus
from app.llm.scripted.scripts import SCRIPTS
from app.storage.checkpoints.decide_and_claim import DecidedAndClaimed, decide_and_claim
from app.workers.direct_start import decide_and_execute
from app.workers.worker import Worker
from tests.support.conditions import eventually
from tests.support.contents import contents
from tests.support.probes import Probe
from tests.support.replicas import ANN, Replica, Run, an_agent, decision, of_type, open_replica

pytestmark = pytest.mark.anyio

Change = Callable[[Replica, Run], Awaitable[Any]]


@asynccontextmanager
async def waiting(
    url: str, *probes: Probe, prompt: str = "CALL guarded {}"
) -> AsyncIterator[tuple[Replica, Run]]:
    """A run that waits for its approvals, on a replica that does nothing by itself."""
    catalog = an_agent(*(probe.tool for probe in probes), approval=[each.name for each in probes])
    async with open_replica(url, catalog, SCRIPTS["plain"]) as replica:
        run = await replica.start(prompt)
        await run.finished()
        await idle(replica)
        yield replica, run


async def idle(replica: Replica) -> None:
    """Wait until the replica executes no run."""

    async def is_idle() -> bool:
        return replica.worker.executing == 0

    await eventually(is_idle)


@pytest.fixture
def guarded() -> Probe:
    return Probe(name="guarded")


def after_its_read(monkeypatch: pytest.MonkeyPatch, change: Callable[[], Awaitable[Any]]) -> None:
    """Make a change between the read and the write of the decision."""

    async def late(*arguments: Any, **named: Any) -> DecidedAndClaimed | None:
        await change()
        return await decide_and_claim(*arguments, **named)

    monkeypatch.setattr("app.commands.tickets.decide_at_once.decide_and_claim", late)


async def _cancelled(replica: Replica, run: Run) -> None:
    await replica.database.pool.execute(
        "UPDATE runs SET cancel_requested_at = now(), cancel_requested_by = 'bob'"
    )


async def _paused(replica: Replica, run: Run) -> None:
    await run.pause()


async def _decided_by_another(replica: Replica, run: Run) -> None:
    await replica.database.pool.execute(
        "UPDATE tickets SET status = 'decided', decision_id = 'theirs', updated_at = now()"
    )


async def _expired(replica: Replica, run: Run) -> None:
    await replica.database.pool.execute("UPDATE tickets SET status = 'expired', updated_at = now()")


CHANGES: dict[str, Change] = {
    "a cancel": _cancelled,
    "a pause": _paused,
    "another decision": _decided_by_another,
    "an expiry": _expired,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("is_late", [False, True], ids=["before the read", "after the read"])
async def test_a_change_by_others_leaves_the_decision_to_the_locking_command(
    database_url: str,
    guarded: Probe,
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
    is_late: bool,
) -> None:
    async with waiting(database_url, guarded) as (replica, run):
        await replica.take_nothing_new()
        [ticket] = await run.tickets()
        stored: list[object] = []

        async def changed() -> None:
            await change(replica, run)
            stored.append(await contents(replica.database.pool))

        if is_late:
            after_its_read(monkeypatch, changed)
        else:
            await changed()
        answers = [decision(ticket.id, "approve")]
        assert await decide_at_once(replica.ctx, ANN, run.id, answers, replica.worker) is None
        assert stored == [await contents(replica.database.pool)]


async def test_a_batch_of_which_one_ticket_has_changed_writes_nothing(
    database_url: str, guarded: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with waiting(database_url, guarded, prompt="CALLS 2 guarded {}") as (
        replica,
        run,
    ):
        await replica.take_nothing_new()
        first, second = await run.tickets()
        stored: list[object] = []

        async def expire_one() -> None:
            await replica.database.pool.execute(
                "UPDATE tickets SET status = 'expired' WHERE id = $1", second.id
            )
            stored.append(await contents(replica.database.pool))

        after_its_read(monkeypatch, expire_one)
        answers = [decision(first.id, "approve"), decision(second.id, "approve")]
        assert await decide_at_once(replica.ctx, ANN, run.id, answers, replica.worker) is None
        assert stored == [await contents(replica.database.pool)]


async def test_a_batch_is_decided_and_claimed_together(database_url: str, guarded: Probe) -> None:
    async with waiting(database_url, guarded, prompt="CALLS 2 guarded {}") as (
        replica,
        run,
    ):
        first, second = await run.tickets()
        answers = [
            decision(first.id, "approve", reason="fine"),
            decision(second.id, "reject", reason="too much"),
        ]
        decided = await decide_at_once(replica.ctx, ANN, run.id, answers, replica.worker)
        assert decided is not None
        assert decided.claimed is not None
        assert (await run.now()).status is RunStatus.RUNNING
        assert replica.worker.slots.reserve()
        replica.worker.launch(decided.claimed)
        emitted = await run.finished(2)
        assert emitted[-1]["termination"] == {"type": "natural_end"}
        told = [(each["ticket_id"], each["action"]) for each in of_type(emitted, "ticket_decided")]
        assert told == [(first.id, "approve"), (second.id, "reject")]
        assert len(guarded.handed) == 1


async def test_of_two_decisions_at_the_same_time_one_takes_effect(
    database_url: str, guarded: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with waiting(database_url, guarded) as (replica, run):
        [ticket] = await run.tickets()
        both_have_read = anyio.Event()
        readers: list[int] = []

        async def meet() -> None:
            readers.append(1)
            if len(readers) == 2:
                both_have_read.set()
            await both_have_read.wait()

        after_its_read(monkeypatch, meet)
        written: list[bool] = []

        async def decide_as(reason: str) -> None:
            answers = [decision(ticket.id, "approve", reason=reason)]
            decided = await decide_at_once(replica.ctx, ANN, run.id, answers, replica.worker)
            written.append(decided is not None)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(decide_as, "one")
            tasks.start_soon(decide_as, "other")
        assert sorted(written) == [False, True]
        count = await replica.database.pool.fetchval("SELECT count(*) FROM decisions")
        assert (count, (await run.now()).attempt) == (1, 2)


async def test_an_id_that_was_refused_before_is_left_to_the_locking_command(
    database_url: str, guarded: Probe
) -> None:
    async with waiting(database_url, guarded) as (replica, run):
        await replica.take_nothing_new()
        [ticket] = await run.tickets()
        await replica.database.pool.execute(
            "INSERT INTO decisions (tenant, ticket, decision_id, action, subject, effect, refusal, at) "
            "VALUES ('default', $1, 'mine', 'approve', 'ann', 'refused', 'approver_not_allowed', now())",
            ticket.id,
        )
        before = await contents(replica.database.pool)
        answers = [decision(ticket.id, "approve", decision_id="mine")]
        assert await decide_at_once(replica.ctx, ANN, run.id, answers, replica.worker) is None
        assert await contents(replica.database.pool) == before


@pytest.mark.parametrize(
    "change", ["attempt = attempt + 1", "unread_inputs = 1"], ids=["a claim", "a message"]
)
async def test_a_run_that_was_claimed_or_got_a_message_meanwhile_is_left_to_the_locking_command(
    database_url: str, guarded: Probe, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    async with waiting(database_url, guarded) as (replica, run):
        await replica.take_nothing_new()
        [ticket] = await run.tickets()
        pool = replica.database.pool
        after_its_read(monkeypatch, lambda: pool.execute(f"UPDATE runs SET {change}"))
        answers = [decision(ticket.id, "approve")]
        assert await decide_at_once(replica.ctx, ANN, run.id, answers, replica.worker) is None
        assert await pool.fetchval("SELECT count(*) FROM decisions") == 0


async def test_the_other_way_decides_what_changed_meanwhile(
    database_url: str, guarded: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with waiting(database_url, guarded) as (replica, run):
        [ticket] = await run.tickets()

        async def resumable() -> None:
            await run.pause()
            await run.resume()

        after_its_read(monkeypatch, resumable)
        answers = [decision(ticket.id, "approve")]
        await decide_and_execute(replica.ctx, replica.worker, ANN, run.id, answers)
        emitted = await run.finished(2)
        assert emitted[-1]["termination"] == {"type": "natural_end"}
        assert len(guarded.handed) == 1


async def test_the_claim_reads_only_the_messages_that_the_worker_does_not_know(
    database_url: str, guarded: Probe
) -> None:
    async with waiting(database_url, guarded) as (replica, run):
        for _ in range(2):
            [ticket] = await run.tickets()
            known = replica.worker.first_message_to_read(run.record.tenant, run.thread_id)
            answers = [decision(ticket.id, "approve")]
            decided = await decide_at_once(replica.ctx, ANN, run.id, answers, replica.worker)
            assert decided is not None
            assert decided.claimed is not None
            progress = decided.claimed.progress
            assert progress is not None
            assert progress.from_seq == known
            assert [each.seq for each in progress.log] == [*range(known, decided.claimed.next_seq)]
            assert [each.status for each in progress.tickets] == [TicketStatus.DECIDED]
            assert replica.worker.slots.reserve()
            replica.worker.launch(decided.claimed)
            await run.finished(2)
            run = await replica.start("CALL guarded {}", thread_id=run.thread_id)
            await run.finished()
            await idle(replica)
        assert known > 1


async def test_a_log_that_the_worker_no_longer_knows_is_loaded(
    database_url: str, guarded: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with waiting(database_url, guarded) as (replica, run):
        [ticket] = await run.tickets()
        monkeypatch.setattr(Worker, "first_message_to_read", lambda *_: 2)
        answers = [decision(ticket.id, "approve")]
        await decide_and_execute(replica.ctx, replica.worker, ANN, run.id, answers)
        emitted = await run.finished(2)
        assert emitted[-1]["termination"] == {"type": "natural_end"}
        # The model's script reads the prompt again, so it had the whole log.
        assert len(guarded.handed) == 1


async def test_an_empty_batch_claims_nothing(database_url: str, guarded: Probe) -> None:
    async with waiting(database_url, guarded) as (replica, run):
        assert await decide_at_once(replica.ctx, ANN, run.id, [], replica.worker) is None
        assert (await run.now()).status is RunStatus.WAITING
