"""A tree of three levels on broken connections: no child twice, no lost answer, and a cancel ends all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from app.agents.catalog import Catalog
from app.domain.runs.runs import Done, RunRecord
from app.domain.runs.terminations import Cancelled, NaturalEnd
from app.llm.scripted.model import Gate, Script, turn
from app.storage.postgres.database import DATABASE_UNAVAILABLE
from tests.support.conditions import eventually
from tests.support.forwarders import Forwarder, forwarding
from tests.support.invariants import broken_invariants
from tests.support.replicas import TIMEOUT_SECONDS, Replica, Run, open_replica
from tests.support.run_trees import (
    ScriptedAgent,
    agents_with_delegates,
    by_transcript,
    records_below,
    work_for,
)

pytestmark = pytest.mark.anyio

TREE = ["clerk", "digger", "digger", "digger", "digger", "lead"]
STATEMENTS = [
    b"INSERT INTO runs",
    b"INSERT INTO inputs",
    b"INSERT INTO tickets",
    b"INSERT INTO decisions",
    b"INSERT INTO tasks",
    b"UPDATE tasks",
    b'"start_child"',
    b'"report_to_parent"',
]


@pytest.fixture
async def forwarder(database_url: str) -> AsyncIterator[Forwarder]:
    async with forwarding(database_url) as forwarder:
        yield forwarder


def three_levels(gate: Gate, last: Gate | None = None) -> tuple[Catalog, Script]:
    """The boss waits for a lead and runs a clerk in the background. Each of them runs two diggers at once."""
    delegates_twice = turn(work_for("digger", "one", id="d1"), work_for("digger", "two", id="d2"))
    digger_turn = turn("Dug.") if last is None else turn(last, "Dug.")
    both = turn(gate, work_for("clerk", id="c1"), work_for("lead", id="c2"))
    in_background = {"background": ["agent_run_clerk"]}
    return agents_with_delegates(
        boss=ScriptedAgent(
            by_transcript(both, turn("Half."), turn("All."), turn("All.")),
            delegates=["clerk", "lead"],
            more=in_background,
        ),
        clerk=ScriptedAgent(by_transcript(delegates_twice, turn("Counted.")), delegates=["digger"]),
        lead=ScriptedAgent(by_transcript(delegates_twice, turn("Led.")), delegates=["digger"]),
        digger=ScriptedAgent(by_transcript(digger_turn)),
    )


async def finished_tree(replica: Replica, run: Run) -> list[RunRecord]:
    """The records of the whole tree, once all are done."""

    async def tree_when_done() -> list[RunRecord] | None:
        # The pool may still have a connection that the test has closed.
        with suppress(*DATABASE_UNAVAILABLE):
            tree = [await run.now(), *await records_below(replica, run)]
            return tree if len(tree) > len(TREE) and all(each.is_done for each in tree) else None
        return None

    return await eventually(tree_when_done)


@pytest.mark.parametrize("is_done", [False, True], ids=["lost", "reply lost"])
@pytest.mark.parametrize("statement", STATEMENTS, ids=bytes.decode)
async def test_a_tree_ends_although_any_one_statement_loses_its_connection(
    database_url: str, forwarder: Forwarder, statement: bytes, is_done: bool
) -> None:
    gate = Gate()
    catalog, script = three_levels(gate)
    async with open_replica(forwarder.url, catalog, script) as replica:
        run = await replica.start()
        await asyncio.wait_for(gate.reached.wait(), TIMEOUT_SECONDS)
        (forwarder.lose_reply_to if is_done else forwarder.lose)(statement)
        gate.open.set()
        tree = await finished_tree(replica, run)
        assert forwarder.cuts == 1
    assert sorted(each.agent_id for each in tree[1:]) == TREE
    ends = [each.state.termination for each in tree if isinstance(each.state, Done)]
    assert ends == [NaturalEnd()] * 7
    assert await broken_invariants(database_url) == {}


async def test_a_cancel_ends_the_tree_despite_a_database_outage(
    database_url: str, forwarder: Forwarder
) -> None:
    gate, last = Gate(), Gate()
    gate.open.set()
    catalog, script = three_levels(gate, last)
    async with open_replica(forwarder.url, catalog, script) as replica:
        run = await replica.start()

        async def grown() -> bool:
            return len(await records_below(replica, run)) == len(TREE)

        await eventually(grown)
        await run.cancel("enough")
        await forwarder.block()
        await forwarder.open()
        tree = await finished_tree(replica, run)
    ends = [each.state.termination for each in tree if isinstance(each.state, Done)]
    assert [isinstance(end, Cancelled) for end in ends] == [True] * 7
    assert await broken_invariants(database_url) == {}
