"""A tree of three levels whose connections break: no child is doubled, no answer lost, a cancel settles it all."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.agents.catalog import Catalog
from app.domain.runs.runs import Done, RunRecord
from app.domain.runs.terminations import Cancelled, NaturalEnd
from app.llm.scripted.model import Gate, Script, turn
from tests.support.conditions import eventually
from tests.support.families import Member, by_transcript, family, records_below, work_for
from tests.support.forwarders import Forwarder, forwarding
from tests.support.house import PATIENCE, Replica, Run, replica
from tests.support.invariants import broken_invariants

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
    b'"tell_parent"',
]


@pytest.fixture
async def way(database_url: str) -> AsyncIterator[Forwarder]:
    async with forwarding(database_url) as forwarder:
        yield forwarder


def three_levels(gate: Gate, last: Gate | None = None) -> tuple[Catalog, Script]:
    """The boss waits for a lead and has a clerk work in the background; either has two diggers at once."""
    digs = turn(work_for("digger", "one", id="d1"), work_for("digger", "two", id="d2"))
    dug = turn("Dug.") if last is None else turn(last, "Dug.")
    both = turn(gate, work_for("clerk", id="c1"), work_for("lead", id="c2"))
    patient = {"background": ["agent_run_clerk"]}
    return family(
        boss=Member(
            by_transcript(both, turn("Half."), turn("All."), turn("All.")),
            delegates=["clerk", "lead"],
            more=patient,
        ),
        clerk=Member(by_transcript(digs, turn("Counted.")), delegates=["digger"]),
        lead=Member(by_transcript(digs, turn("Led.")), delegates=["digger"]),
        digger=Member(by_transcript(dug)),
    )


async def over(house: Replica, run: Run) -> list[RunRecord]:
    """All of the tree, once it is done."""

    async def look() -> list[RunRecord] | None:
        tree = [await run.now(), *await records_below(house, run)]
        return tree if len(tree) > len(TREE) and all(each.is_done for each in tree) else None

    return await eventually(look)


@pytest.mark.parametrize("is_done", [False, True], ids=["lost", "reply lost"])
@pytest.mark.parametrize("statement", STATEMENTS, ids=bytes.decode)
async def test_a_tree_comes_to_its_end_whatever_statement_is_lost(
    database_url: str, way: Forwarder, statement: bytes, is_done: bool
) -> None:
    gate = Gate()
    catalog, script = three_levels(gate)
    async with replica(way.url, catalog, script) as house:
        run = await house.start()
        await asyncio.wait_for(gate.reached.wait(), PATIENCE)
        (way.lose_reply_to if is_done else way.lose)(statement)
        gate.open.set()
        tree = await over(house, run)
        assert way.cuts == 1
    assert sorted(each.agent_id for each in tree[1:]) == TREE
    ends = [each.state.termination for each in tree if isinstance(each.state, Done)]
    assert ends == [NaturalEnd()] * 7
    assert await broken_invariants(database_url) == {}


async def test_a_cancel_settles_the_tree_though_the_database_goes_away(
    database_url: str, way: Forwarder
) -> None:
    gate, last = Gate(), Gate()
    gate.open.set()
    catalog, script = three_levels(gate, last)
    async with replica(way.url, catalog, script) as house:
        run = await house.start()

        async def grown() -> bool:
            return len(await records_below(house, run)) == len(TREE)

        await eventually(grown)
        await run.cancel("enough")
        await way.block()
        await way.open()
        tree = await over(house, run)
    ends = [each.state.termination for each in tree if isinstance(each.state, Done)]
    assert [isinstance(end, Cancelled) for end in ends] == [True] * 7
    assert await broken_invariants(database_url) == {}
