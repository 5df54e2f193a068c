"""Revealed tools over suspensions, takeovers, hand-overs and hand-offs: they are state of the run."""

from typing import Any

import pytest

from app.agents.catalog import Catalog
from app.domain.agents.specs import ToolExecution
from app.domain.agents.tool_search import ToolSearchMode, ToolSearchPolicy
from app.domain.ids import CallId
from app.domain.runs.requested_answers import RequestedAnswer
from app.domain.threads.messages import Role
from app.llm.scripted.model import Call, ScriptInOrder, in_order, turn
from app.runtime.plugins import HookView, OnlyTools, Phase, Plugin
from app.runtime.tool_search.revealed_tools import REVEALED_TOOLS
from tests.support.probes import Probe
from tests.support.replicas import Event, Run, an_agent, of_type, open_replica

pytestmark = pytest.mark.anyio

ALWAYS_SEARCH = ToolSearchPolicy(mode=ToolSearchMode.ON)


def an_agent_with_search(*probes: Probe, **more: Any) -> Catalog:
    return an_agent(*(probe.tool for probe in probes), tool_search=ALWAYS_SEARCH, **more)


def search(id: str, query: str) -> Call:
    return Call(tool="search_tools", arguments={"query": query}, id=CallId(id))


def shown(script: ScriptInOrder) -> list[list[str]]:
    return [[tool.name for tool in request.tools] for request in script.requests]


def revealed_in(events: list[Event]) -> list[Any]:
    snapshots = of_type(events, "state_snapshot")
    return [each["snapshot"]["extensions"].get(REVEALED_TOOLS.name) for each in snapshots]


async def results(run: Run) -> list[str]:
    return [e.message.text for e in await run.log() if e.message.role is Role.TOOL]


async def test_revealed_tools_survive_a_suspension_and_another_process(database_url: str) -> None:
    pay, zip_up = Probe(name="pay"), Probe(name="zip_up")
    catalog = an_agent_with_search(pay, zip_up, approval=["pay"])
    before = in_order(turn(search("c1", "zip")), turn(search("c2", "pay")), turn(pay.call("c3")))
    async with open_replica(database_url, catalog, before) as replica:
        run = await replica.start()
        emitted = await run.finished()
        assert revealed_in(emitted)[-1] == ["zip_up", "pay"], "events show them"
    after = in_order(turn(zip_up.call("c4")), turn("done"))
    async with open_replica(database_url, catalog, after) as replica:
        run = replica.same(run)
        await run.decide("c3", "approve")
        await run.finished(2)
        assert (await results(run))[-2:] == ["pay did it", "zip_up did it"]
    assert shown(before)[-1] == ["search_tools", "zip_up", "pay"]
    assert shown(after) == [["search_tools", "zip_up", "pay"]] * 2
    assert after.requests[0].tools == before.requests[-1].tools
    assert (len(pay.handed), len(zip_up.handed)) == (1, 1)


async def test_revealed_tools_survive_a_takeover(database_url: str) -> None:
    slow = Probe(name="slow", effect="read", held=True)
    catalog = an_agent_with_search(slow)
    before = in_order(turn(search("c1", "slow")), turn(slow.call("c2")))
    async with open_replica(database_url, catalog, before) as replica:
        run = await replica.start()
        await slow.was_reached()
        await replica.kill()
    slow.open.set()
    after = in_order(turn("done"))
    async with open_replica(database_url, catalog, after) as replica:
        emitted = await replica.same(run).finished()
    assert shown(after) == [["search_tools", "slow"]]
    assert revealed_in(emitted)[-1] == ["slow"]
    assert len(slow.handed) == 2, "a call that is safe to repeat ran again"


@pytest.mark.parametrize("mode", list(ToolExecution))
async def test_several_searches_of_one_answer_add_up(
    database_url: str, mode: ToolExecution
) -> None:
    probes = [Probe(name=name) for name in ("apple", "banana", "cherry")]
    catalog = an_agent_with_search(*probes, tool_execution=mode)
    script = in_order(
        turn(search("c1", "cherry"), search("c2", "apple"), search("c3", "cherry apple")),
        turn("done"),
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.finished()
        assert all("You can call these tools" in text for text in await results(run))
    assert shown(script)[-1] == ["search_tools", "cherry", "apple"]


@pytest.mark.parametrize("mode", list(ToolExecution))
async def test_a_call_of_an_unshown_tool_does_not_run(
    database_url: str, mode: ToolExecution
) -> None:
    pay = Probe(name="pay")
    catalog = an_agent_with_search(pay, tool_execution=mode)
    script = in_order(turn(pay.call("c1")), turn(pay.call("c2")), turn("done"))
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.finished()
        assert "was not shown to you" in (await results(run))[0]
    assert [handed.call_id for handed in pay.handed] == ["c2"]


async def test_the_tool_that_a_start_forces_is_always_shown(database_url: str) -> None:
    pay, other = Probe(name="pay"), Probe(name="other")
    script = in_order(turn(pay.call("c1")), turn("done"))
    async with open_replica(database_url, an_agent_with_search(pay, other), script) as replica:
        run = await replica.start(answer=RequestedAnswer(tool_choice="tool:pay"))
        await run.finished()
    assert shown(script) == [["pay", "search_tools"]] * 2
    assert script.requests[0].tool_choice == "tool:pay"
    assert len(pay.handed) == 1


async def test_frontend_tools_are_found_like_others(database_url: str) -> None:
    tool = {"name": "pick_color", "description": "Let the user pick a color.", "parameters": {}}
    script = in_order(turn(search("c1", "color")), turn("done"))
    agent = an_agent_with_search(Probe(name="pay"))
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start(frontend_tools=[tool])
        await run.finished()
    assert shown(script) == [["search_tools"], ["search_tools", "pick_color"]]


async def test_tools_that_a_plugin_chooses_need_no_search(database_url: str) -> None:
    async def only_pay(view: HookView) -> list[OnlyTools]:
        return [OnlyTools(frozenset({"pay"}))] if view.steps == 0 else []

    plugin = Plugin(name="chooser", hooks={Phase.BEFORE_INFERENCE: only_pay})
    pay, other = Probe(name="pay"), Probe(name="other")
    script = in_order(turn(pay.call("c1")), turn("done"))
    agent = an_agent_with_search(pay, other, plugins=[plugin])
    async with open_replica(database_url, agent, script) as replica:
        await (await replica.start()).finished()
    assert shown(script) == [["pay"], ["search_tools", "pay"]]
    assert len(pay.handed) == 1


async def test_a_call_that_waits_runs_although_its_tool_needs_a_search_now(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new release, or a server with more tools, may bring the search in the middle of a run."""
    pay = Probe(name="pay")
    catalog = an_agent(pay.tool, approval=["pay"])
    async with open_replica(database_url, catalog, in_order(turn(pay.call("c1")))) as replica:
        run = await replica.start()
        await run.finished()
    monkeypatch.setattr(ToolSearchPolicy, "applies_to", lambda policy, tools: True)
    script = in_order(turn("done"))
    async with open_replica(database_url, catalog, script) as replica:
        run = replica.same(run)
        await run.decide("c1", "approve")
        await run.finished(2)
    assert len(pay.handed) == 1
    assert shown(script) == [["search_tools"]]
