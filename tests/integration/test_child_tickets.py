"""Tickets of child runs: shown once on the streams of all runs above, and decided there as at the child."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from functools import partial

import pytest

from app.agents.catalog import Catalog
from app.commands.followups.dispatch import run_followup
from app.commands.tickets.decide import decide
from app.domain.children.followups import ChildFollowup, FollowupKind
from app.domain.errors import Forbidden, Invalid, NotFound
from app.domain.ids import RunId, Tenant
from app.domain.json_values import JsonObject
from app.domain.principals import DEFAULT_TENANT, Principal, Scope
from app.domain.tickets.terms import ApproverRule
from app.domain.tickets.tickets import Ticket
from app.events.follow import StreamScope, follow
from app.llm.scripted.model import Gate, Script, turn
from app.queries import records
from app.storage.children import child_runs
from app.storage.postgres.database import Connection
from app.storage.runs import runs
from app.storage.tickets import child_tickets
from tests.support.conditions import eventually
from tests.support.emitters import TIMEOUT_SECONDS
from tests.support.finishes import asked_by
from tests.support.probes import Probe
from tests.support.replicas import ANN, Event, Replica, Run, decision, of_type, open_replica
from tests.support.run_trees import (
    ScriptedAgent,
    agents_with_delegates,
    cautious,
    family_of,
    lose_followups,
    opened_below,
    overdue,
    work_for,
)

pytestmark = pytest.mark.anyio

BOB = Principal(DEFAULT_TENANT, "bob", frozenset(Scope))


def three_levels(probe: Probe, gate: Gate | None = None, **terms: object) -> tuple[Catalog, Script]:
    """A boss, its scout, and the scout's digger, whose call needs approval. The gate is before that call."""
    digger = cautious(probe, turn("Dug."))
    if gate is not None:
        digger = replace(digger, turns=[turn(gate, probe.call("c1")), turn("Dug.")])
    return agents_with_delegates(
        boss=ScriptedAgent([turn(work_for("scout")), turn("All.")], delegates=["scout"]),
        scout=ScriptedAgent([turn(work_for("digger")), turn("Half.")], delegates=["digger"]),
        digger=ScriptedAgent(digger.turns, tools=digger.tools, more={**digger.more, **terms}),
    )


async def asking_tree(replica: Replica) -> tuple[Run, Run, Run, Ticket]:
    """The three runs once all streams show the digger's ticket, and the ticket."""
    boss = await replica.start()
    [scout] = await family_of(boss, 1)
    [digger] = await family_of(scout, 1)
    await opened_below(scout, 1)
    await opened_below(boss, 1)
    [ticket] = await digger.tickets()
    return boss, scout, digger, ticket


async def closed_below(run: Run, event_type: str) -> JsonObject:
    """The only event of this type about a ticket below the run, once it is there."""
    emitted = await run.until(event_type)
    [found] = [event for event in of_type(emitted, event_type) if "child" in event]
    return found


async def needs_decision(run: Run) -> bool:
    record = run.record
    status = await runs.status_of_run(run.replica.database.pool, record.tenant, run.id)
    view = await records.read_run(run.replica.ctx, ANN, run.id)
    assert status is not None
    assert status.needs_decision is view.needs_decision
    return status.needs_decision


# --- shown and decided ----------------------------------------------------------------------------


async def test_a_ticket_is_shown_once_on_the_streams_of_all_runs_above(database_url: str) -> None:
    catalog, script = three_levels(Probe())
    async with open_replica(database_url, catalog, script) as replica:
        boss, scout, digger, ticket = await asking_tree(replica)
        child = {"run_id": digger.id, "thread_id": digger.thread_id, "agent_id": "digger"}
        for above in (scout, boss):
            assert await needs_decision(above)
            [opened] = await opened_below(above, 1)
            assert opened["child"] == child
            assert (opened["ticket"]["id"], opened["ticket"]["run_id"]) == (ticket.id, digger.id)
        await digger.decide(ticket.id, "approve")
        for above in (scout, boss):
            decided = await closed_below(above, "ticket_decided")
            assert (decided["ticket_id"], decided["child"]) == (ticket.id, child)
            assert (decided["action"], decided["decided_by"]) == ("approve", "ann")
        for run in (digger, scout, boss):
            await run.ended()
        # Their order and their number are checked with each reading.
        assert [end["waiting"]["needs_decision"] for end in await suspensions(boss)] == [False]


async def suspensions(run: Run) -> list[JsonObject]:
    ends = of_type(await run.until("run_finish", 2), "run_finish")
    return [end for end in ends if end["termination"]["type"] == "suspended"]


async def test_a_ticket_below_is_decided_at_any_run_above_as_at_its_own(database_url: str) -> None:
    probe = Probe()
    catalog, script = three_levels(probe)
    async with open_replica(database_url, catalog, script) as replica:
        boss, scout, digger, ticket = await asking_tree(replica)
        request = decision(ticket.id, "approve", decision_id="mine")
        decided = await decide(replica.ctx, ANN, boss.id, [request])
        assert decided.run.id == digger.id
        for run in (scout, digger, boss):
            again = await decide(replica.ctx, ANN, run.id, [request])
            assert [result.is_duplicate for result in again.results] == [True]
        await boss.ended()
    assert len(probe.handed) == 1


async def test_scopes_and_approver_rules_stay_those_of_the_child(database_url: str) -> None:
    rule = {"probe": ApproverRule(not_starter=True)}
    catalog, script = three_levels(Probe(), approvers=rule)
    async with open_replica(database_url, catalog, script) as replica:
        boss, _, _, ticket = await asking_tree(replica)
        with pytest.raises(Forbidden, match="started"):
            await decide(replica.ctx, ANN, boss.id, [decision(ticket.id, "approve")])
        reader = Principal(DEFAULT_TENANT, "eve", frozenset({Scope.RUNS_READ}))
        with pytest.raises(Forbidden):
            await decide(replica.ctx, reader, boss.id, [decision(ticket.id, "approve")])
        stranger = Principal(Tenant("other"), "eve", frozenset(Scope))
        with pytest.raises(NotFound):
            await decide(replica.ctx, stranger, boss.id, [decision(ticket.id, "approve")])
        await decide(replica.ctx, BOB, boss.id, [decision(ticket.id, "approve")])
        await boss.ended()


async def test_a_ticket_is_not_decided_at_a_run_that_is_not_above_it(database_url: str) -> None:
    catalog, script = three_levels(Probe())
    async with open_replica(database_url, catalog, script) as replica:
        boss, _, digger, ticket = await asking_tree(replica)
        other = await replica.start()
        for run in (other.id, RunId(ticket.id)):
            with pytest.raises(NotFound):
                await decide(replica.ctx, ANN, run, [decision(ticket.id, "approve")])
        [own] = await boss.tickets()
        with pytest.raises(NotFound, match="GET /v1/tickets"):
            await decide(replica.ctx, ANN, digger.id, [decision(own.id, "cancel")])
        await boss.cancel()
        await other.cancel()


async def test_a_batch_decides_tickets_of_one_run_only(database_url: str) -> None:
    catalog, script = three_levels(Probe())
    async with open_replica(database_url, catalog, script) as replica:
        boss, scout, _, ticket = await asking_tree(replica)
        [own], [of_scout] = await boss.tickets(), await scout.tickets()
        for other in (own, of_scout):
            batch = [decision(ticket.id, "approve"), decision(other.id, "cancel")]
            with pytest.raises(Invalid) as refused:
                await decide(replica.ctx, ANN, boss.id, batch)
            assert refused.value.code == "tickets_of_several_runs"
        assert [each.decision for each in await scout.tickets()] == [None]
        await boss.cancel()


# --- other ends of a ticket -----------------------------------------------------------------------


async def test_the_expiry_of_a_ticket_below_is_shown(database_url: str) -> None:
    catalog, script = three_levels(Probe(), ticket_expires_in=1.0)
    async with open_replica(database_url, catalog, script) as replica:
        boss = await replica.start()
        expired = await closed_below(boss, "ticket_expired")
        assert expired["on_expiry"] == "reject"
        await boss.ended()


async def test_the_end_of_a_child_voids_its_tickets_on_the_streams_above(database_url: str) -> None:
    catalog, script = three_levels(Probe())
    async with open_replica(database_url, catalog, script) as replica:
        boss, _, digger, ticket = await asking_tree(replica)
        await digger.cancel()
        void = await closed_below(boss, "ticket_void")
        assert void["ticket_id"] == ticket.id
        await boss.ended()


async def test_a_ticket_below_a_finished_child_does_not_block_the_parent(database_url: str) -> None:
    """The scout ends while its background child asks: the boss needs no decision any more."""
    probe = Probe()
    digger = cautious(probe, turn("Dug."))
    catalog, script = agents_with_delegates(
        boss=ScriptedAgent([turn(work_for("scout")), turn("All.")], delegates=["scout"]),
        scout=ScriptedAgent(
            [turn(work_for("digger"))],
            delegates=["digger"],
            more={"background": ["agent_run_digger"]},
        ),
        digger=digger,
    )
    async with open_replica(database_url, catalog, script) as replica:
        boss = await replica.start()
        [scout] = await family_of(boss, 1)
        await scout.ended()
        [alone] = await family_of(scout, 1)
        await alone.finished()
        emitted = await boss.ended()
        assert len(of_type(emitted, "ticket_opened")) == 1 + len(of_type(emitted, "ticket_void"))
        await alone.cancel()


# --- waits of the parent --------------------------------------------------------------------------


async def test_a_parent_that_suspends_while_a_child_asks_names_the_childs_ticket(
    database_url: str,
) -> None:
    probe = Probe()
    digger = cautious(probe, turn("Dug."))
    catalog, script = agents_with_delegates(
        boss=ScriptedAgent(
            [turn(probe.call("own"), work_for("digger")), turn("All.")],
            delegates=["digger"],
            tools=[probe.tool],
            more={"approval": ["probe"]},
        ),
        digger=digger,
    )
    async with open_replica(database_url, catalog, script) as replica:
        boss = await replica.start()
        [child] = await family_of(boss, 1)
        await child.finished()
        await opened_below(boss, 1)
        [ticket] = await child.tickets()
        await boss.decide("perm_own", "approve")
        emitted = await boss.finished(2)
        named = emitted[-1]["waiting"]["tickets"]
        assert asked_by(emitted[-1]) == [ticket.name]
        assert (named[0]["id"], named[0]["child"]["agent_id"]) == (ticket.id, "digger")
        assert emitted[-1]["waiting"]["reason"] == "child_runs"
        await decide(replica.ctx, ANN, boss.id, [decision(ticket.id, "approve")])
        await boss.ended()
    assert len(probe.handed) == 2


async def stream_of(run: Run) -> AsyncIterator[JsonObject]:
    """The events that a client of the run's stream gets, until the stream ends."""
    scope = StreamScope(run.record.tenant, run.thread_id, run.id)
    after = run.record.events_from - 1
    follower = follow(
        run.replica.database.pool, run.replica.hub, scope, after=after, heartbeat=TIMEOUT_SECONDS
    )
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async for received in follower.frames():
                for frame in received or ():
                    yield json.loads(frame.json)
    finally:
        follower.close()


def asked_on(emitted: Iterable[JsonObject]) -> set[str]:
    """The tickets for people that a client knows to be open: opened on the stream, and not closed there."""
    opened = [event["ticket"] for event in emitted if event["event_type"] == "ticket_opened"]
    shown = {ticket["id"] for ticket in opened if ticket["kind"] not in ("child", "event")}
    ends = ("ticket_decided", "ticket_expired", "ticket_void")
    return shown - {event["ticket_id"] for event in emitted if event["event_type"] in ends}


async def test_a_stream_stays_open_after_run_finish_and_ends_with_the_ticket_of_a_child(
    database_url: str,
) -> None:
    """The child asks only when the client has read that the parent waits for it."""
    gate = Gate()
    catalog, script = three_levels(Probe(), gate)
    async with open_replica(database_url, catalog, script) as replica:
        boss = await replica.start()
        emitted: list[JsonObject] = []
        async for event in stream_of(boss):
            emitted.append(event)
            if event["event_type"] == "run_finish":
                assert event["waiting"]["needs_decision"] is False
                gate.open.set()
        assert emitted[-1]["event_type"] == "ticket_opened"
        assert emitted[-1]["child"]["agent_id"] == "digger"
        assert asked_on(emitted) == {emitted[-1]["ticket"]["id"]}
        assert await needs_decision(boss)
        await boss.cancel()


async def test_a_stream_ends_with_a_run_finish_that_names_the_ticket_of_a_child(
    database_url: str,
) -> None:
    """The parent suspends only when its stream has shown the child's ticket."""
    gate = Gate()
    catalog, script = agents_with_delegates(
        boss=ScriptedAgent(
            [turn(work_for("digger")), turn(gate, "Meanwhile."), turn("All.")],
            delegates=["digger"],
            more={"background": ["agent_run_digger"]},
        ),
        digger=cautious(Probe(), turn("Dug.")),
    )
    async with open_replica(database_url, catalog, script) as replica:
        boss = await replica.start()
        emitted: list[JsonObject] = []
        async for event in stream_of(boss):
            emitted.append(event)
            if event["event_type"] == "ticket_opened":
                gate.open.set()
        assert emitted[-1]["event_type"] == "run_finish"
        assert emitted[-1]["waiting"]["needs_decision"] is True
        named = {ticket["id"] for ticket in emitted[-1]["waiting"]["tickets"]}
        assert named == asked_on(emitted)
        assert len(named) == 1
        await boss.cancel()


# --- repeated and lost follow-ups -----------------------------------------------------------------


async def test_a_repeated_follow_up_shows_nothing_twice(database_url: str) -> None:
    catalog, script = three_levels(Probe())
    async with open_replica(database_url, catalog, script) as replica:
        boss, scout, digger, ticket = await asking_tree(replica)

        async def repeat() -> None:
            for parent, child in ((scout, digger), (boss, scout), (scout, digger)):
                about = show_tickets(parent, child)
                for _ in range(2):
                    assert await run_followup(replica.ctx, about) is None

        before = [await shown_about_tickets(run) for run in (scout, boss)]
        await repeat()
        assert [await shown_about_tickets(run) for run in (scout, boss)] == before
        await digger.decide(ticket.id, "approve")
        await boss.ended()
        await repeat()
        for run in (scout, boss):
            emitted = await run.ended()
            kinds = ("ticket_opened", "ticket_decided")
            below = [[one for one in of_type(emitted, k) if "child" in one] for k in kinds]
            assert [len(each) for each in below] == [1, 1]
            assert emitted[-1]["event_type"] == "run_finish"


async def shown_about_tickets(run: Run) -> list[Event]:
    """All events so far, but for the child's progress: it changes whenever the child is executed again."""
    emitted = await run.until("run_finish")
    return [event for event in emitted if event["event_type"] != "activity_snapshot"]


async def activity(run: Run, status: str) -> None:
    """Waits until the run's stream shows this status of its child."""
    count = 1
    while True:
        shown = of_type(await run.until("activity_snapshot", count), "activity_snapshot")
        if any(event["content"]["status"] == status for event in shown):
            return
        count = len(shown) + 1


def show_tickets(parent: Run, child: Run) -> ChildFollowup:
    return ChildFollowup(
        kind=FollowupKind.SHOW_TICKETS,
        tenant=parent.record.tenant,
        parent_run_id=parent.id,
        child_run_id=child.id,
    )


async def test_lost_follow_ups_are_found_and_show_what_is_missing(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    catalog, script = three_levels(Probe(), gate)

    async def lost(connection: Connection, tenant: Tenant, parent: RunId, child: RunId) -> None:
        """Enqueues nothing."""

    async with open_replica(database_url, catalog, script) as replica:
        with monkeypatch.context() as patch:
            patch.setattr(child_runs, "show_tickets", lost)
            boss = await replica.start()
            [scout] = await family_of(boss, 1)
            [digger] = await family_of(scout, 1)
            # The scout's suspension has been reported to the boss before the digger asks.
            await activity(boss, "waiting")
            gate.open.set()
            await opened_below(scout, 1)
            await replica.take_nothing_new()
        assert await overdue(replica) == [show_tickets(boss, scout)]
        assert not await needs_decision(boss)
        await run_followup(replica.ctx, show_tickets(boss, scout))
        assert await overdue(replica) == []
        assert await needs_decision(boss)

        [ticket] = await digger.tickets()
        await decide(replica.ctx, ANN, digger.id, [decision(ticket.id, "reject")], deliver=False)
        await lose_followups(replica)
        found = await overdue(replica)
        assert sorted(found, key=repr) == sorted(
            [show_tickets(scout, digger), show_tickets(boss, scout)], key=repr
        )
        for about in found:
            await run_followup(replica.ctx, about)
        assert await overdue(replica) == []
        for above in (scout, boss):
            assert (await closed_below(above, "ticket_decided"))["action"] == "reject"


async def test_rows_about_tickets_below_are_deleted_with_their_run(database_url: str) -> None:
    catalog, script = three_levels(Probe())
    async with open_replica(database_url, catalog, script) as replica:
        boss, *_ = await asking_tree(replica)
        await boss.cancel()
        count = partial(replica.database.pool.fetchval, "SELECT count(*) FROM child_tickets")
        assert await count() == 2

        async def has_ended() -> bool:
            async with replica.database.reading() as connection:
                below = await child_tickets.open_below(connection, DEFAULT_TENANT, boss.id)
            return not below and (await boss.now()).is_done

        await eventually(has_ended)
        await replica.database.pool.execute("DELETE FROM threads")
        assert await count() == 0
