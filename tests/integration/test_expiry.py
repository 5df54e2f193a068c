"""Tickets without a decision in time: the effect on the run, once, and the reminders before."""

import asyncio
from contextlib import AsyncExitStack
from datetime import datetime, timedelta

import pytest

from app.clock import SystemClock
from app.commands.tickets.expire import ExpiryCounts, expire_due
from app.domain.errors import Gone
from app.domain.runs.runs import Done, RunStatus
from app.domain.runs.terminations import Cancelled
from app.domain.structs import replace
from app.domain.tickets.terms import OnExpiry
from app.domain.tickets.tickets import TicketFilter, TicketStatus
from app.llm.scripted.model import in_order, turn
from app.storage.tickets import feed as ticket_feed
from tests.support.probes import Probe
from tests.support.replicas import Replica, Run, an_agent, of_type, open_replica, types_of

pytestmark = pytest.mark.anyio

SOON = 0.4
LATER = 3600.0


class WrongClock(SystemClock):
    """A clock that is wrong by a given time."""

    def __init__(self, by: timedelta) -> None:
        self._by = by

    def now(self) -> datetime:
        return super().now() + self._by


async def move_deadline(replica: Replica, seconds: float, remind: float | None = None) -> None:
    """Let the open tickets expire `seconds` from now, by the database's clock."""
    await replica.database.pool.execute(
        "UPDATE tickets SET expires_at = now() + $1::interval, remind_at = now() + $2::interval"
        " WHERE status = 'open'",
        timedelta(seconds=seconds),
        None if remind is None else timedelta(seconds=remind),
    )


async def results(run: Run) -> list[str]:
    """The tool results that the model read last."""
    last = {
        entry.message.tool_call_id: entry.message.text
        for entry in await run.log()
        if entry.message.tool_call_id
    }
    return list(last.values())


async def test_the_model_gets_a_result_for_an_expired_ticket(database_url: str) -> None:
    probe = Probe()
    agent = an_agent(probe.tool, approval=["probe"], ticket_expires_in=SOON)
    script = in_order(turn(probe.call("c1")), turn("done"))
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        emitted = await run.finished(2)
        [ticket] = await run.tickets()
        with pytest.raises(Gone) as late:
            await run.decide("perm_c1", "approve")
        opened = of_type(emitted, "ticket_opened")[0]["ticket"]
        assert (opened["expires_in"], opened["on_expiry"]) == (SOON, "reject")
        assert (ticket.status, ticket.decision) == (TicketStatus.EXPIRED, None)
        assert ticket.applied_at is not None
        assert await results(run) == ["Expired: no decision came in time"]
    assert late.value.code == "ticket_expired"
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert len(of_type(emitted, "ticket_expired")) == 1
    assert probe.handed == []


async def test_an_expiry_may_cancel_the_run(database_url: str) -> None:
    probe = Probe()
    agent = an_agent(
        probe.tool, approval=["probe"], ticket_expires_in=SOON, on_expiry=OnExpiry.CANCEL_RUN
    )
    script = in_order(turn(probe.call("c1"), probe.call("c2")))
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        emitted = await run.finished(2)
        state = (await run.now()).state
        assert isinstance(state, Done)
        assert state.termination == Cancelled("ticket 'perm_c1' was not answered in time")
        assert types_of(emitted)[-7:] == [
            "ticket_expired",
            "ticket_expired",
            "cancel_requested",
            "tool_call_done",
            "tool_call_done",
            "state_snapshot",
            "run_finish",
        ]
        assert {each.status for each in await run.tickets()} == {TicketStatus.EXPIRED}


async def test_an_overdue_ticket_is_reminded_of_and_can_still_be_decided(
    database_url: str,
) -> None:
    probe = Probe()
    agent = an_agent(
        probe.tool, approval=["probe"], ticket_expires_in=SOON, on_expiry=OnExpiry.KEEP
    )
    script = in_order(turn(probe.call("c1")), turn("done"))
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        emitted = await run.until("ticket_reminder", 3)
        left = [event["seconds_left"] for event in of_type(emitted, "ticket_reminder")]
        assert left == sorted(left, reverse=True)
        assert left[0] <= SOON / 2
        assert left[-1] == 0
        assert await expire_due(replica.ctx, 10) == ExpiryCounts()
        await run.decide("perm_c1", "approve")
        await run.finished(2)
        feed = await ticket_feed.read_after(
            replica.database, run.record.tenant, 0, TicketFilter(), 100
        )
        assert [notice.kind.value for notice in feed.notices] == [
            "opened",
            *["reminder"] * 3,
            "decided",
        ]
    assert len(probe.handed) == 1


async def test_reminders_come_at_half_time_and_when_a_tenth_is_left(database_url: str) -> None:
    probe = Probe()
    agent = an_agent(probe.tool, approval=["probe"], ticket_expires_in=LATER)
    async with open_replica(database_url, agent, in_order(turn(probe.call("c1")))) as replica:
        run = await replica.start()
        await run.finished()
        await move_deadline(replica, LATER / 2 - 1, remind=-1)
        emitted = await run.until("ticket_reminder")
        [reminder] = of_type(emitted, "ticket_reminder")
        assert 0.4 * LATER < reminder["seconds_left"] < 0.5 * LATER
        row = await replica.database.pool.fetchrow(
            "SELECT reminders, extract(epoch FROM expires_at - remind_at)::float8 AS left FROM tickets"
        )
        assert row is not None
        assert row["reminders"] == 1
        assert row["left"] == pytest.approx(LATER / 10, rel=0.01)


async def test_an_expiry_during_an_execution_is_applied_without_another_suspension(
    database_url: str,
) -> None:
    probe = Probe(held=True)
    agent = an_agent(probe.tool, approval=["probe"], ticket_expires_in=LATER)
    script = in_order(turn(probe.call("c1", "a"), probe.call("c2", "b")), turn("done"))
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("perm_c1", "approve")
        await probe.was_reached()
        await move_deadline(replica, -1)
        await run.until("ticket_expired")
        assert (await run.now()).status is RunStatus.RUNNING
        probe.open.set()
        emitted = await run.finished(2)
        assert emitted[-1]["termination"] == {"type": "natural_end"}
        assert await results(run) == ["probe did a", "Expired: no decision came in time"]


async def test_many_replicas_expire_each_ticket_once(database_url: str) -> None:
    probe = Probe()
    agent = an_agent(probe.tool, approval=["probe"], ticket_expires_in=LATER)
    script = in_order(*[turn(probe.call("c1"))] * 6, *[turn("done")] * 6)
    async with AsyncExitStack() as stack:
        replicas = [
            await stack.enter_async_context(open_replica(database_url, agent, script))
            for _ in range(3)
        ]
        runs = [await replicas[0].start() for _ in range(6)]
        for run in runs:
            await run.finished()
        await move_deadline(replicas[0], -1)
        await asyncio.gather(
            *(replica.deadlines.run_once() for replica in replicas for _ in range(2))
        )
        for run in runs:
            emitted = await run.finished(2)
            assert len(of_type(emitted, "ticket_expired")) == 1
            assert len(of_type(emitted, "tool_call_resumed")) == 1
        feed = await ticket_feed.read_after(
            replicas[0].database, runs[0].record.tenant, 0, TicketFilter(), 100
        )
    kinds = [notice.kind.value for notice in feed.notices]
    assert (kinds.count("opened"), kinds.count("expired"), len(kinds)) == (6, 6, 12)


@pytest.mark.parametrize("by", [timedelta(days=-1), timedelta(days=1)], ids=["back", "ahead"])
async def test_a_jump_of_the_local_clock_expires_no_ticket(
    database_url: str, by: timedelta
) -> None:
    probe = Probe()
    agent = an_agent(probe.tool, approval=["probe"], ticket_expires_in=LATER)
    async with open_replica(database_url, agent, in_order(turn(probe.call("c1")))) as replica:
        run = await replica.start()
        await run.finished()
        wrong_clock = replace(replica.ctx, clock=WrongClock(by))
        assert await expire_due(wrong_clock, 10) == ExpiryCounts()
        [ticket] = await run.tickets()
        assert ticket.status is TicketStatus.OPEN
        await move_deadline(replica, -1)
        await run.until("ticket_expired")


async def test_of_a_decision_and_an_expiry_one_wins(database_url: str) -> None:
    probe = Probe()
    agent = an_agent(probe.tool, approval=["probe"], ticket_expires_in=LATER)
    rounds = 8
    script = in_order(*[turn(probe.call("c1")), turn("done")] * rounds)
    won = 0
    async with open_replica(database_url, agent, script) as replica:
        for _ in range(rounds):
            run = await replica.start()
            await run.finished()
            await move_deadline(replica, -1)
            answer, *_ = await asyncio.gather(
                run.decide("perm_c1", "approve"),
                *(expire_due(replica.ctx, 10) for _ in range(2)),
                return_exceptions=True,
            )
            await run.finished(2)
            [ticket] = await run.tickets()
            if isinstance(answer, Gone):
                assert (ticket.status, answer.code) == (TicketStatus.EXPIRED, "ticket_expired")
            else:
                assert not isinstance(answer, BaseException)
                assert ticket.status is TicketStatus.DECIDED
                won += 1
    assert len(probe.handed) == won
