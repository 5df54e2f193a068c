"""Decisions in any order, with expiries, restarts and cancels in between. The tickets
behave like a model of a few lines, each call runs at most once, and the feed reports it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from app.commands.tickets.decide import decide
from app.commands.tickets.decision_types import DecisionRequest
from app.commands.tickets.expire import expire_due
from app.domain.errors import Refusal
from app.domain.principals import DEFAULT_TENANT, Principal, Scope
from app.domain.tickets.decisions import Action, DecisionAnswer
from app.domain.tickets.terms import ApproverRule
from app.domain.tickets.tickets import TicketFilter
from app.llm.scripted.model import Script, in_order, turn
from app.storage.tickets import feed as ticket_feed
from tests.support.databases import Databases
from tests.support.event_order import check_run
from tests.support.probes import Probe
from tests.support.replicas import Replica, Run, an_agent, open_replica

PEOPLE = {
    name: Principal(DEFAULT_TENANT, name, frozenset({Scope.RUNS_READ, Scope.DECISIONS_WRITE}))
    for name in ("ann", "bob", "cleo")
}
OPEN, GUARDED = "perm_c1", "perm_c2"
ANSWERS = {
    "approve": DecisionAnswer(action=Action.APPROVE),
    "edit": DecisionAnswer(action=Action.EDIT, arguments={"text": "else"}),
    "reject": DecisionAnswer(action=Action.REJECT),
}


@dataclass(frozen=True, slots=True)
class Give:
    person: str
    ticket: str
    answer: str
    id: str | None


@dataclass(frozen=True, slots=True)
class Expire:
    ticket: str


@dataclass(frozen=True, slots=True)
class Restart:
    pass


@dataclass(frozen=True, slots=True)
class Cancel:
    pass


Step: TypeAlias = Give | Expire | Restart | Cancel
GIVE = st.builds(
    Give,
    st.sampled_from(sorted(PEOPLE)),
    st.sampled_from((OPEN, GUARDED)),
    st.sampled_from(sorted(ANSWERS)),
    st.sampled_from((None, None, "x", "y")),
)
RARE = st.one_of(
    st.builds(Expire, st.sampled_from((OPEN, GUARDED))), st.builds(Restart), st.builds(Cancel)
)
STEPS = st.lists(st.one_of(GIVE, GIVE, GIVE, RARE), min_size=3, max_size=10)


# --- the expected tickets -------------------------------------------------------------------------


@dataclass(slots=True)
class ExpectedTicket:
    """The expected state of one ticket."""

    is_guarded: bool
    status: str = "open"
    given: list[Give] = field(default_factory=list)
    winner: Give | None = None

    def take(self, new: Give) -> str:
        name = new.id or f"{new.person} {new.answer}"
        for before in self.given:
            if (before.id or f"{before.person} {before.answer}") == name:
                if (before.person, before.answer) == (new.person, new.answer):
                    return "duplicate"
                if self.status == "open":
                    return "decision_id_conflict"
        if self.status != "open":
            return f"ticket_{'already_decided' if self.status == 'decided' else self.status}"
        if self.is_guarded and new.person == "ann":
            return "approver_not_allowed"
        lets_pass = new.answer != "reject"
        if self.is_guarded and lets_pass:
            if any(before.person == new.person for before in self.given):
                return "already_voted"
            self.given.append(new)
            if sum(before.answer == new.answer for before in self.given) < 2:
                return "voted"
        else:
            self.given.append(new)
        self.status, self.winner = "decided", new
        return "decided"

    def end(self, status: str) -> None:
        if self.status == "open":
            self.status = status


# --- the real run ---------------------------------------------------------------------------------


class DecidedRun:
    """One run with two calls that wait. One needs two approvers, neither of whom started the run."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.probe, self.guarded = Probe(), Probe(name="guarded")
        self.agent = an_agent(
            self.probe.tool,
            self.guarded.tool,
            approval=["probe", "guarded"],
            approvers={"guarded": ApproverRule(not_starter=True, quorum=2)},
            ticket_expires_in=3600.0,
        )
        self.script: Script = in_order(
            turn(self.probe.call("c1", "this"), self.guarded.call("c2", "that")), turn("done")
        )
        self.plain = {OPEN: ExpectedTicket(False), GUARDED: ExpectedTicket(True)}

    async def play(self, steps: Sequence[Step]) -> None:
        run: Run | None = None
        for steps_before_restart in _split_at_restarts(steps):
            async with open_replica(self.url, self.agent, self.script) as replica:
                if run is None:
                    run = await replica.start()
                    await run.finished()
                run = replica.same(run)
                for step in steps_before_restart:
                    await self._do(replica, run, step)
        async with open_replica(self.url, self.agent, self.script) as replica:
            assert run is not None
            run = replica.same(run)
            for ticket in self.plain:
                await self._do(replica, run, Expire(ticket))
            await self._check(replica, run)

    async def _do(self, replica: Replica, run: Run, step: Step) -> None:
        match step:
            case Give():
                assert await _given(replica, run, step) == self.plain[step.ticket].take(step), step
            case Expire(ticket):
                await replica.database.pool.execute(
                    "UPDATE tickets SET expires_at = now() WHERE ticket_id = $1 AND status = 'open'",
                    ticket,
                )
                await expire_due(replica.ctx, 10)
                self.plain[ticket].end("expired")
            case Cancel():
                await run.cancel()
                await _all_events(run)
                for each in self.plain.values():
                    each.end("void")
            case Restart():
                raise AssertionError("between chapters")

    async def _check(self, replica: Replica, run: Run) -> None:
        emitted = await _all_events(run)
        check_run(emitted)
        statuses = {ticket.name: ticket.status.value for ticket in await run.tickets()}
        assert statuses == {name: each.status for name, each in self.plain.items()}
        for name, probe, text in ((OPEN, self.probe, "this"), (GUARDED, self.guarded, "that")):
            winner = self.plain[name].winner
            allowed = {"approve": text, "edit": "else"}
            ran = [handed.text for handed in probe.handed]
            wanted = [] if winner is None or winner.answer == "reject" else [allowed[winner.answer]]
            # A cancel may have come between the answer and the call.
            assert ran in (wanted, []) if _is_cancelled(emitted) else ran == wanted
        feed = await ticket_feed.read_after(
            replica.database, run.record.tenant, 0, TicketFilter(), 100
        )
        assert [notice.number for notice in feed.notices] == list(range(1, feed.head + 1))
        for name, each in self.plain.items():
            kinds = [n.kind.value for n in feed.notices if n.ticket.name == name]
            votes = len(each.given) - (each.winner is not None)
            assert kinds == ["opened", *["voted"] * votes, each.status]


async def _given(replica: Replica, run: Run, step: Give) -> str:
    [ticket] = [each for each in await run.tickets() if each.name == step.ticket]
    request = DecisionRequest(
        ticket=ticket.id, answer=ANSWERS[step.answer], decision_id=step.id, args_digest=None
    )
    try:
        decided = await decide(replica.ctx, PEOPLE[step.person], run.id, [request])
    except Refusal as refusal:
        return refusal.code
    [result] = decided.results
    if result.is_duplicate:
        return "duplicate"
    return "decided" if result.counts else "voted"


async def _all_events(run: Run) -> list[dict[str, Any]]:
    """Until the run is done: the follower ends with its end."""
    emitted: list[dict[str, Any]] = []
    count = 1
    while not emitted or emitted[-1].get("termination", {}).get("type", "suspended") == "suspended":
        emitted = await run.until("run_finish", count)
        count += 1
    return emitted


def _is_cancelled(emitted: Sequence[dict[str, Any]]) -> bool:
    return bool(emitted[-1]["termination"]["type"] == "cancelled")


def _split_at_restarts(steps: Sequence[Step]) -> list[list[Step]]:
    chapters: list[list[Step]] = [[]]
    for step in steps:
        if isinstance(step, Restart):
            chapters.append([])
        else:
            chapters[-1].append(step)
    return chapters


@asynccontextmanager
async def _decided_run(postgres: Databases) -> AsyncIterator[DecidedRun]:
    async with postgres.fresh() as url:
        yield DecidedRun(url)


@settings(max_examples=8, deadline=None, database=None)
@given(steps=STEPS)
def test_tickets_behave_as_expected_for_any_order_of_decisions(
    postgres: Databases, steps: list[Step]
) -> None:
    async def play() -> None:
        async with _decided_run(postgres) as decided_run:
            await decided_run.play(steps)

    asyncio.run(play())
