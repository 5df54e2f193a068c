"""Delegation: what a child run is started with, and when a delegate call is refused."""

from typing import Any

import pytest

from app.domain.agents.capabilities import REMOTE_STATELESS_TEXT
from app.domain.agents.specs import Delegation
from app.domain.children.child_runs import delegate_tool_name
from app.domain.ids import AgentId, CallId, RunId
from app.domain.runs.runs import AWAITING_CHILDREN, Done, Lineage, Waiting
from app.domain.runs.terminations import NaturalEnd
from app.domain.structs import replace
from app.domain.tickets.decisions import Action
from app.domain.tickets.tickets import TicketKind
from app.llm.scripted.model import Call, turn
from app.runtime.agent import RemoteAgent, ResolvedAgent, UnknownAgentVersion
from app.tools.functions.decorator import tool
from tests.support.plain_runs import SPEC, PlainRun

pytestmark = pytest.mark.anyio

HELPER = AgentId("helper")
NAME = delegate_tool_name(HELPER)


@tool(name=NAME)
async def delegate_tool(prompt: str) -> str:
    """The delegate tool of the helper; the loop starts a child run instead of calling it."""
    raise AssertionError("the loop gives this call to a child run")


def delegating(*calls: Call, delegation: Delegation | None = None, **of_spec: Any) -> PlainRun:
    run = PlainRun(
        turn(*calls),
        turn("Done."),
        tools=[delegate_tool],
        delegates=(HELPER,),
        delegation=delegation or Delegation(),
        **of_spec,
    )
    run.others[HELPER] = ResolvedAgent(
        spec=replace(SPEC, id=HELPER), model=run.agent.model, tools={}
    )
    return run


def a_call(id: str = "c1", prompt: str = "Go.") -> Call:
    return Call(tool=NAME, arguments={"prompt": prompt}, id=CallId(id))


def end_of(run: PlainRun) -> object:
    state = run.rows.record.state
    assert isinstance(state, Done)
    return state.termination


def refusals(run: PlainRun) -> list[str]:
    """The errors that the model read."""
    assert end_of(run) == NaturalEnd()
    return [text for role, text in run.texts if role == "tool"]


async def test_a_call_waits_for_a_child_one_level_below() -> None:
    run = delegating(a_call(prompt="Count."))
    await run.start(lineage=Lineage(RunId("root"), depth=2), request={"ancestors": ["boss"]})
    state = run.rows.record.state
    assert isinstance(state, Waiting)
    assert state.message == AWAITING_CHILDREN
    [ticket] = run.rows.open_tickets
    assert ticket.kind is TicketKind.CHILD
    assert ticket.evidence is not None
    work = dict(ticket.evidence)
    assert (work["agent_id"], work["prompt"], work["depth"]) == (HELPER, "Count.", 3)
    assert list(work["ancestors"]) == ["boss", "clerk"]
    assert work["keep"] is True
    assert ticket.name == f"delegate_run:{work['run_id']}"
    [done] = run.events("tool_call_done")
    assert done["result"]["metadata"] == {"child_run_id": work["run_id"]}
    assert run.rows.record.run_state is not None
    assert run.rows.record.run_state["extensions"]["__runtime.children"] == 1


@pytest.mark.parametrize("depth, is_given", [(2, True), (3, False)])
async def test_a_tree_of_runs_has_a_greatest_depth(depth: int, is_given: bool) -> None:
    run = delegating(a_call(), delegation=Delegation(max_depth=3))
    await run.start(lineage=Lineage(RunId("root"), depth=depth))
    if is_given:
        assert run.rows.open_tickets
    else:
        assert refusals(run) == ["a child run at depth 4 isn't allowed; the limit is 3"]


@pytest.mark.parametrize("had, is_given", [(0, True), (1, True), (2, False)])
async def test_a_run_has_a_largest_number_of_children(had: int, is_given: bool) -> None:
    run = delegating(a_call(), delegation=Delegation(max_children=2))
    state = {"revision": 1, "extensions": {"__runtime.children": had}}
    await run.start(run_state=state)
    if is_given:
        assert run.rows.open_tickets
    else:
        assert refusals(run) == ["this run has started 2 child runs, and may start no more"]


async def test_a_run_cannot_delegate_to_its_ancestor() -> None:
    run = delegating(a_call())
    await run.start(request={"ancestors": [HELPER]})
    [refused] = refusals(run)
    assert refused.startswith("agent 'helper' already waits for this work")


async def test_an_unknown_delegate_is_named() -> None:
    run = delegating(a_call())
    run.others[HELPER] = UnknownAgentVersion("no such agent")
    await run.start()
    assert refusals(run) == ["no such agent"]


async def test_a_delegate_may_be_a_remote_agent_without_continuation() -> None:
    run = delegating(a_call())
    run.others[HELPER] = RemoteAgent(replace(SPEC, id=HELPER), REMOTE_STATELESS_TEXT)
    await run.start()
    assert [ticket.kind for ticket in run.rows.open_tickets] == [TicketKind.CHILD]


async def test_the_report_of_a_child_is_the_result_of_its_call() -> None:
    run = delegating(a_call())
    await run.start()
    report = {"run_id": "child", "outcome": "succeeded", "response": "4"}
    await run.answer(Action.RESPOND, result=report)
    assert end_of(run) == NaturalEnd()
    [resumed] = run.events("tool_call_resumed")
    assert resumed["result"] == {
        "status": "done",
        "outcome": "succeeded",
        "text": '{"outcome":"succeeded","response":"4"}',
        "data": {"outcome": "succeeded", "response": "4"},
        "metadata": {"child_run_id": "child"},
    }
    assert ("tool", '{"outcome":"succeeded","response":"4"}') in run.texts


async def test_work_in_the_background_begins_as_a_task_with_a_child() -> None:
    run = delegating(a_call(prompt="Count."), background=(NAME,))
    await run.start()
    assert end_of(run) == NaturalEnd()
    [task] = run.system.begun
    assert task.child is not None
    assert (task.child.agent_id, task.child.prompt) == (HELPER, "Count.")
    [done] = run.events("tool_call_done")
    assert done["result"]["data"] == {"task_id": task.id, "status": "running"}
    assert done["result"]["metadata"] == {"child_run_id": task.child.run_id}
