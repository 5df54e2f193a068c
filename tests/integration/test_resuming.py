"""A run goes on in the process that took the answer; whatever goes wrong there, it goes on, and once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from app.commands.tickets.decide import decide
from app.domain.errors import Conflict, Invalid, NotFound
from app.domain.runs.runs import RunStatus
from app.domain.tickets.tickets import TicketStatus
from app.llm.scripted.scripts import SCRIPTS
from app.storage.postgres.database import DATABASE_UNAVAILABLE
from app.storage.runs.runs import RunKey
from app.workers.direct_start import decide_and_execute
from app.workers.periodic.sweeper import Sweeper
from app.workers.worker import Worker
from tests.support.conditions import eventually
from tests.support.forwarders import Forwarder, forwarding
from tests.support.house import (
    ANN,
    PATIENCE,
    Replica,
    Run,
    an_agent,
    decision,
    of_type,
    replica,
)
from tests.support.probes import Probe
from tests.support.strangers import never_deaf

pytestmark = pytest.mark.anyio

DECIDING = b"INSERT INTO decisions"


@asynccontextmanager
async def a_house(url: str, *probes: Probe, slots: int = 2) -> AsyncIterator[Replica]:
    """Its model makes the calls that a prompt spells out; those of `asked` need a person."""
    catalog = an_agent(*(probe.tool for probe in probes), approval=["asked"])
    async with replica(url, catalog, SCRIPTS["plain"], slots=slots) as house:
        yield house


@pytest.fixture
def asked() -> Probe:
    return Probe(name="asked")


@pytest.fixture
async def way(database_url: str) -> AsyncIterator[Forwarder]:
    async with forwarding(database_url) as forwarder:
        yield forwarder


async def suspended(house: Replica) -> tuple[Run, str]:
    """A run at rest, and the name of its ticket; its slot is free again."""
    run = await house.start("CALL asked {}")
    await run.finished()

    async def at_rest() -> bool:
        return house.worker.executing == 0

    await eventually(at_rest)
    [ticket] = await run.tickets()
    return run, ticket.name


async def queued(house: Replica) -> int:
    """Deliveries that nobody has worked off."""
    count: int = await house.database.pool.fetchval("SELECT count(*) FROM pgq.pgqueuer")
    return count


def free_slots(worker: Worker) -> int:
    reserved = 0
    while worker.reserve():
        reserved += 1
    for _ in range(reserved):
        worker.free()
    return reserved


def claiming(run: Run) -> bytes:
    """What only a claim sends: the run, and after it its owner to be."""
    return UUID(run.id).bytes + b"\0\0\0\x10" + UUID(run.replica.me).bytes


async def goes_on_once(run: Run, probe: Probe) -> None:
    """One more activation, which uses the answer and is the last."""
    said = await run.finished(2)
    assert said[-1]["termination"] == {"type": "natural_end"}
    assert len(of_type(said, "run_start")) == 2
    assert len(of_type(said, "tool_call_resumed")) == 1
    assert len(probe.handed) == 1


async def test_it_goes_on_without_a_delivery(database_url: str, asked: Probe) -> None:
    async with a_house(database_url, asked) as house:
        run, ticket = await suspended(house)
        await house.take_nothing_new()
        await run.decide(ticket, "approve")
        assert await queued(house) == 0
        await goes_on_once(run, asked)


async def test_a_process_without_a_worker_leaves_it_to_the_others(
    database_url: str, asked: Probe
) -> None:
    async with a_house(database_url, asked) as house:
        run, ticket = await suspended(house)
        answer = decision(ticket, "approve")
        await decide_and_execute(house.ctx, None, ANN, run.id, [answer])
        await goes_on_once(run, asked)


async def test_a_process_without_a_free_slot_leaves_it_to_the_others(
    database_url: str, asked: Probe
) -> None:
    held = Probe(name="held", held=True)
    async with a_house(database_url, asked, held, slots=1) as house:
        run, ticket = await suspended(house)
        busy = await house.start("CALL held {}")
        await held.was_reached()
        await run.decide(ticket, "approve")
        assert await queued(house) == 1
        async with a_house(database_url, asked, held) as other:
            await goes_on_once(other.same(run), asked)
        held.open.set()
        await busy.finished()


async def test_a_process_that_dies_after_the_commit_is_made_up_for_by_the_sweeper(
    database_url: str, asked: Probe
) -> None:
    async with a_house(database_url, asked) as first:
        run, ticket = await suspended(first)
        await first.take_nothing_new()
        await decide(first.ctx, ANN, run.id, [decision(ticket, "approve")], deliver=False)
        await first.kill()
    async with a_house(database_url, asked) as second:
        run = second.same(run)
        await run.until("run_start", 2)
        await goes_on_once(run, asked)
        assert (await run.now()).attempt == 2


async def test_the_sweeper_gives_whoever_took_the_answer_its_time(
    database_url: str, asked: Probe
) -> None:
    async with a_house(database_url, asked) as house:
        run, ticket = await suspended(house)
        await house.take_nothing_new()
        await decide(house.ctx, ANN, run.id, [decision(ticket, "approve")], deliver=False)
        patient, hasty = (
            Sweeper(
                house.database,
                house.registry,
                interval=interval,
                heartbeat_timeout=PATIENCE,
                outage_allowance=never_deaf(),
            )
            for interval in (60.0, 0.0)
        )
        assert (await patient.run_once(), await queued(house)) == (0, 0)
        assert (await hasty.run_once(), await queued(house)) == (1, 1)
        assert (await hasty.run_once(), await queued(house)) == (1, 1)


@pytest.mark.parametrize("arrives", [False, True], ids=["lost", "landed"])
async def test_a_claim_that_the_database_does_not_answer_costs_no_answer_and_no_slot(
    way: Forwarder, asked: Probe, arrives: bool
) -> None:
    async with a_house(way.url, asked) as house:
        run, ticket = await suspended(house)
        break_over = way.lose_reply_to if arrives else way.lose
        break_over(claiming(run))
        with capture_logs() as logs:
            decided = await run.decide(ticket, "approve")
        assert "resume_left_to_the_sweeper" in {entry["event"] for entry in logs}
        assert way.cuts == 1
        assert not decided.results[0].is_duplicate
        assert free_slots(house.worker) == 2
        await goes_on_once(run, asked)
        assert (await run.now()).attempt == (3 if arrives else 2)


@pytest.mark.parametrize("arrives", [False, True], ids=["lost", "landed"])
async def test_a_decision_that_the_database_does_not_answer_may_be_sent_again(
    way: Forwarder, asked: Probe, arrives: bool
) -> None:
    async with a_house(way.url, asked) as house:
        run, ticket = await suspended(house)
        break_over = way.lose_reply_to if arrives else way.lose
        break_over(DECIDING)
        with pytest.raises(DATABASE_UNAVAILABLE):
            await run.decide(ticket, "approve")
        assert way.cuts == 1
        assert free_slots(house.worker) == 2
        again = await run.decide(ticket, "approve")
        assert again.results[0].is_duplicate is arrives
        await goes_on_once(run, asked)


async def test_a_batch_that_is_refused_costs_no_slot(database_url: str, asked: Probe) -> None:
    held = Probe(name="held", held=True)
    async with a_house(database_url, asked, held) as house:
        run, ticket = await suspended(house)
        with pytest.raises(NotFound):
            await run.decide("nothing", "approve")
        with pytest.raises(Invalid):
            await run.decide(ticket, "edit", arguments={"text": 5})
        assert [one.status for one in await run.tickets()] == [TicketStatus.OPEN]
        assert (await run.now()).status is RunStatus.WAITING

        await run.decide(ticket, "approve")
        await goes_on_once(run, asked)
        await run.decide(ticket, "approve")
        with pytest.raises(Conflict):
            await run.decide(ticket, "reject")

        both = [await house.start("CALL held {}") for _ in range(2)]
        for busy in both:
            await busy.until("inference_complete")
        assert house.worker.executing == 2
        held.open.set()
        for busy in both:
            await busy.finished()


async def test_a_run_that_somebody_else_has_claimed_costs_no_slot(
    database_url: str, asked: Probe
) -> None:
    held = Probe(name="asked", held=True)
    async with a_house(database_url, held) as house, a_house(database_url, held) as other:
        run, ticket = await suspended(house)
        await run.decide(ticket, "approve")
        await held.was_reached()
        record = run.record
        key = RunKey(record.tenant, record.thread_id, record.id, record.attempt)
        assert other.worker.reserve()
        assert not await other.worker.claim_and_launch(key, None)
        assert free_slots(other.worker) == 2
        held.open.set()
        await goes_on_once(run, held)
