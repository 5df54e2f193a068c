"""Stop conditions: each stops the run at its limit and not before, and keeps the answer so far."""

from typing import Any

import pytest

from app.agents.catalog import Catalog
from app.domain.ids import CallId
from app.domain.runs.runs import Done
from app.domain.runs.terminations import NaturalEnd, Stopped, Termination
from app.domain.structs import replace
from app.llm.scripted.model import Call, ScriptedReasoning, ScriptInOrder, in_order, turn
from tests.support.probes import Probe
from tests.support.replicas import Run, an_agent, configured, of_type, open_replica, texts_of

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
        *(turn(probe.call(f"c{index}", text)) for index, text in enumerate(texts)), turn("done")
    )


async def test_a_spent_token_budget_prevents_the_next_step(database_url: str) -> None:
    probe = Probe()
    async with open_replica(
        database_url, stopping(probe.tool, token_budget=1), calls(probe, "a", "b")
    ) as replica:
        run = await replica.start()
        termination = await ended(run)
        assert isinstance(termination, Stopped)
        assert termination.code == "token_budget"
        assert (await run.now()).steps == 1
        assert texts_of(await run.log())[-1] == ("tool", "probe did a")


async def test_a_budget_that_is_not_reached_does_not_stop_the_run(database_url: str) -> None:
    probe = Probe()
    large_budget = {
        "token_budget": 10_000,
        "timeout": 1000,
        "consecutive_errors": 5,
        "loop_detection": 9,
    }
    async with open_replica(
        database_url, stopping(probe.tool, **large_budget), calls(probe, "a")
    ) as replica:
        assert await ended(await replica.start()) == NaturalEnd()


async def test_zero_disables_a_condition(database_url: str) -> None:
    probe = Probe()
    disabled = {"token_budget": 0, "timeout": 0, "consecutive_errors": 0, "loop_detection": 0}
    async with open_replica(
        database_url, stopping(probe.tool, **disabled), calls(probe, "a", "a")
    ) as replica:
        assert await ended(await replica.start()) == NaturalEnd()


async def test_consecutive_errors_stop_a_run_and_a_success_resets_the_count(
    database_url: str,
) -> None:
    probe = Probe()
    unknown_tool = [turn(Call(tool="nowhere", id=CallId(f"n{index}"))) for index in range(4)]
    script = in_order(
        unknown_tool[0], turn(probe.call("c1")), unknown_tool[1], unknown_tool[2], turn("done")
    )
    async with open_replica(
        database_url, stopping(probe.tool, consecutive_errors=2), script
    ) as replica:
        run = await replica.start()
        termination = await ended(run)
        assert termination == Stopped("consecutive_errors", "2 calls in a row have failed")
        assert (await run.now()).steps == 4


async def test_repeated_equal_calls_stop_a_run_as_a_loop(database_url: str) -> None:
    probe = Probe()
    script = calls(probe, "a", "a", "b", "b", "b", "b")
    async with open_replica(
        database_url, stopping(probe.tool, loop_detection=3), script
    ) as replica:
        termination = await ended(await replica.start())
        assert termination == Stopped("loop_detection", "the same call was made 3 times in a row")
    assert [handed.text for handed in probe.handed] == ["a", "a", "b", "b", "b"]


async def test_a_call_of_a_given_tool_can_end_a_run(database_url: str) -> None:
    probe = Probe(name="submit")
    async with open_replica(
        database_url, stopping(probe.tool, stop_on_tool="submit"), calls(probe, "a")
    ) as replica:
        assert await ended(await replica.start()) == Stopped(
            "stop_on_tool", "tool 'submit' was called"
        )
    assert len(probe.handed) == 1


async def test_a_matching_answer_ends_the_run_and_is_stored(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn("all DONE now ", probe.call("c1")))
    async with open_replica(
        database_url, stopping(probe.tool, content_match="DONE"), script
    ) as replica:
        run = await replica.start()
        emitted = await run.finished()
        assert of_type(emitted, "run_finish")[0]["termination"]["code"] == "content_match"
        assert emitted[-1]["result"]["response"] == "all DONE now "
    assert probe.handed == []


async def test_counters_survive_a_suspension_and_another_process(database_url: str) -> None:
    probe = Probe()
    agent = stopping(probe.tool, approval=["probe"], loop_detection=2)
    script = calls(probe, "a", "a", "a")
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("perm_c0", "approve")
        await run.finished(2)
    async with open_replica(database_url, agent, script) as other:
        here = other.same(run)
        await here.decide("perm_c1", "approve")
        emitted = await here.finished(3)
    assert emitted[-1]["termination"]["code"] == "loop_detection"


async def test_only_execution_time_counts_for_the_timeout(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn(ScriptedReasoning(("hm",)), probe.call("c1")), turn("done"))
    agent = stopping(probe.tool, approval=["probe"], timeout=30)
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        await replica.database.pool.execute(
            "UPDATE runs SET started_at = started_at - interval '1 day' WHERE id = $1", run.id
        )
        await run.decide("perm_c1", "approve")
        emitted = await run.finished(2)
    assert emitted[-1]["termination"] == {"type": "natural_end"}


async def test_too_long_an_execution_stops_a_run(database_url: str) -> None:
    probe = Probe()
    async with open_replica(
        database_url, stopping(probe.tool, timeout=0.000001), calls(probe, "a")
    ) as replica:
        termination = await ended(await replica.start())
    assert isinstance(termination, Stopped)
    assert termination.code == "timeout"


async def test_the_limit_of_rounds_applies_with_and_without_plugins(database_url: str) -> None:
    probe = Probe()
    without_plugins, stopped = (
        an_agent(probe.tool, max_rounds=2),
        stopping(probe.tool, token_budget=10_000),
    )
    for agent in (without_plugins, limited(stopped, 2)):
        async with open_replica(database_url, agent, calls(probe, "a", "b", "c")) as replica:
            run = await replica.start()
            assert await ended(run) == Stopped("max_rounds", "2 rounds were used")
