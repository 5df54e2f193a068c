"""Stop conditions: each fires at its limit and not before, over the whole run, and keeps what was said."""

from dataclasses import replace
from typing import Any

import pytest

from app.agents.catalog import Catalog
from app.domain.ids import CallId
from app.domain.runs.runs import Done
from app.domain.runs.terminations import NaturalEnd, Stopped, Termination
from app.llm.scripted.model import Call, ScriptInOrder, Think, in_order, turn
from tests.support.house import Run, an_agent, configured, of_type, replica, texts_of
from tests.support.probes import Probe

pytestmark = pytest.mark.anyio


def stopping(*tools: Any, approval: Any = (), **conditions: Any) -> Catalog:
    return configured(an_agent(*tools, approval=approval), stop_conditions=conditions)


def limited(catalog: Catalog, max_rounds: int) -> Catalog:
    agents = {id_: replace(spec, max_rounds=max_rounds) for id_, spec in catalog.agents.items()}
    return replace(catalog, agents=agents)


async def ended(run: Run) -> Termination:
    await run.finished()
    state = (await run.now()).state
    assert isinstance(state, Done)
    return state.termination


def calls(probe: Probe, *texts: str) -> ScriptInOrder:
    return in_order(
        *(turn(probe.call(f"c{place}", text)) for place, text in enumerate(texts)), turn("done")
    )


async def test_a_token_budget_is_checked_before_it_is_overspent_further(database_url: str) -> None:
    probe = Probe()
    async with replica(
        database_url, stopping(probe.tool, token_budget=1), calls(probe, "a", "b")
    ) as house:
        run = await house.start()
        termination = await ended(run)
        assert isinstance(termination, Stopped)
        assert termination.code == "token_budget"
        assert (await run.now()).steps == 1
        assert texts_of(await run.log())[-1] == ("tool", "probe did a")


async def test_a_budget_that_is_not_reached_never_fires(database_url: str) -> None:
    probe = Probe()
    wide = {"token_budget": 10_000, "timeout": 1000, "consecutive_errors": 5, "loop_detection": 9}
    async with replica(database_url, stopping(probe.tool, **wide), calls(probe, "a")) as house:
        assert await ended(await house.start()) == NaturalEnd()


async def test_zero_disables(database_url: str) -> None:
    probe = Probe()
    off = {"token_budget": 0, "timeout": 0, "consecutive_errors": 0, "loop_detection": 0}
    async with replica(database_url, stopping(probe.tool, **off), calls(probe, "a", "a")) as house:
        assert await ended(await house.start()) == NaturalEnd()


async def test_errors_in_a_row_stop_a_run_and_a_success_starts_over(database_url: str) -> None:
    probe = Probe()
    nowhere = [turn(Call(tool="nowhere", id=CallId(f"n{place}"))) for place in range(4)]
    script = in_order(nowhere[0], turn(probe.call("c1")), nowhere[1], nowhere[2], turn("done"))
    async with replica(database_url, stopping(probe.tool, consecutive_errors=2), script) as house:
        run = await house.start()
        termination = await ended(run)
        assert termination == Stopped("consecutive_errors", "2 calls in a row have failed")
        assert (await run.now()).steps == 4


async def test_the_same_call_again_and_again_is_a_loop(database_url: str) -> None:
    probe = Probe()
    script = calls(probe, "a", "a", "b", "b", "b", "b")
    async with replica(database_url, stopping(probe.tool, loop_detection=3), script) as house:
        termination = await ended(await house.start())
        assert termination == Stopped("loop_detection", "the same call was made 3 times in a row")
    assert [handed.text for handed in probe.handed] == ["a", "a", "b", "b", "b"]


async def test_a_tool_can_be_the_last(database_url: str) -> None:
    probe = Probe(name="submit")
    async with replica(
        database_url, stopping(probe.tool, stop_on_tool="submit"), calls(probe, "a")
    ) as house:
        assert await ended(await house.start()) == Stopped(
            "stop_on_tool", "tool 'submit' was called"
        )
    assert len(probe.handed) == 1


async def test_an_answer_can_end_a_run_and_is_kept(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn("all DONE now ", probe.call("c1")))
    async with replica(database_url, stopping(probe.tool, content_match="DONE"), script) as house:
        run = await house.start()
        said = await run.finished()
        assert of_type(said, "run_finish")[0]["termination"]["code"] == "content_match"
        assert said[-1]["result"]["response"] == "all DONE now "
    assert probe.handed == []


async def test_counters_survive_a_suspension_and_another_process(database_url: str) -> None:
    probe = Probe()
    agent = stopping(probe.tool, approval=["probe"], loop_detection=2)
    script = calls(probe, "a", "a", "a")
    async with replica(database_url, agent, script) as house:
        run = await house.start()
        await run.finished()
        await run.decide("perm_c0", "approve")
        await run.finished(2)
    async with replica(database_url, agent, script) as other:
        here = other.same(run)
        await here.decide("perm_c1", "approve")
        said = await here.finished(3)
    assert said[-1]["termination"]["code"] == "loop_detection"


async def test_only_time_spent_executing_counts(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn(Think(("hm",)), probe.call("c1")), turn("done"))
    agent = stopping(probe.tool, approval=["probe"], timeout=30)
    async with replica(database_url, agent, script) as house:
        run = await house.start()
        await run.finished()
        await house.database.pool.execute(
            "UPDATE runs SET started_at = started_at - interval '1 day' WHERE id = $1", run.id
        )
        await run.decide("perm_c1", "approve")
        said = await run.finished(2)
    assert said[-1]["termination"] == {"type": "natural_end"}


async def test_executing_for_too_long_stops_a_run(database_url: str) -> None:
    probe = Probe()
    async with replica(
        database_url, stopping(probe.tool, timeout=0.000001), calls(probe, "a")
    ) as house:
        termination = await ended(await house.start())
    assert isinstance(termination, Stopped)
    assert termination.code == "timeout"


async def test_the_limit_of_rounds_holds_whatever_plugins_there_are(database_url: str) -> None:
    probe = Probe()
    bare, stopped = an_agent(probe.tool, max_rounds=2), stopping(probe.tool, token_budget=10_000)
    for agent in (bare, limited(stopped, 2)):
        async with replica(database_url, agent, calls(probe, "a", "b", "c")) as house:
            run = await house.start()
            assert await ended(run) == Stopped("max_rounds", "2 rounds were used")
