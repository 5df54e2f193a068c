"""Delegation: the result that a delegate call returns."""

import pytest

from app.domain.agents.specs import AgentSpec
from app.domain.ids import AgentId
from app.domain.json_values import Json
from app.llm.scripted.model import turn
from app.runtime.plugins import Phase
from app.tools.subagent import SubagentTool
from tests.support.hooks import watching
from tests.support.probes import Probe
from tests.support.replicas import Run, of_type, open_replica
from tests.support.run_trees import ScriptedAgent, agents_with_delegates, children_of, work_for

pytestmark = pytest.mark.anyio

BOSS = ScriptedAgent([turn(work_for("scout", id="c1")), turn("Thanks.")], delegates=["scout"])


async def _result_of_call(run: Run) -> Json:
    [resumed] = of_type(await run.ended(), "tool_call_resumed")
    result: Json = resumed["result"]["data"]
    return result


async def test_execute_delegate_binds_plugin_runtime_context(database_url: str) -> None:
    hooks = watching(Phase.RUN_START)
    catalog, script = agents_with_delegates(
        boss=BOSS, scout=ScriptedAgent([turn("Blue.")], more={"plugins": [hooks.plugin]})
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        result = await _result_of_call(run)
        assert isinstance(result, dict)
        assert result["outcome"] == "succeeded"
        [child] = await children_of(run)
        assert [(view.run.id, view.agent.id) for view in hooks.seen] == [(child.id, "scout")]


async def test_execute_delegate_returns_final_non_tool_message_after_tool_output(
    database_url: str,
) -> None:
    probe = Probe()
    catalog, script = agents_with_delegates(
        boss=BOSS,
        scout=ScriptedAgent(
            [turn("Let me look.", probe.call("p1")), turn("Blue.")], tools=[probe.tool]
        ),
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        assert await _result_of_call(run) == {
            "agent_id": "scout",
            "outcome": "succeeded",
            "response": "Blue.",
            "steps": 2,
        }


async def test_the_result_of_a_delegate_call_names_the_child_run(database_url: str) -> None:
    catalog, script = agents_with_delegates(boss=BOSS, scout=ScriptedAgent([turn("Blue.")]))
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        emitted = await run.ended()
        [child] = await children_of(run)
    [pending] = of_type(emitted, "tool_call_done")
    [resumed] = of_type(emitted, "tool_call_resumed")
    assert pending["result"]["metadata"] == {"child_run_id": child.id}
    assert resumed["result"]["metadata"] == {"child_run_id": child.id}
    assert resumed["result"]["data"]["response"] == "Blue."


async def test_the_error_of_a_delegate_call_names_the_child_run(database_url: str) -> None:
    catalog, script = agents_with_delegates(
        boss=BOSS, scout=ScriptedAgent([turn("a"), turn("b")], more={"max_rounds": 0})
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        [resumed] = of_type(await run.ended(), "tool_call_resumed")
        [child] = await children_of(run)
    assert "failed" in resumed["result"]["text"]
    assert resumed["result"]["outcome"] == "failed"
    assert resumed["result"]["metadata"] == {"child_run_id": child.id}


async def test_a_delegate_call_in_the_background_names_the_child_run(database_url: str) -> None:
    turns = [turn(work_for("scout", id="c1")), turn("It runs."), turn("Thanks.")]
    boss = ScriptedAgent(turns, delegates=["scout"], more={"background": ("agent_run_scout",)})
    catalog, script = agents_with_delegates(boss=boss, scout=ScriptedAgent([turn("Blue.")]))
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        [begun] = of_type(await run.ended(), "tool_call_done")
        [child] = await children_of(run)
    assert begun["result"]["metadata"] == {"child_run_id": child.id}


@pytest.mark.parametrize("prompt", [None, 7, True, ["look"], "", "   "], ids=repr)
def test_a_prompt_is_a_nonempty_string(prompt: Json) -> None:
    tool = SubagentTool(AgentSpec(id=AgentId("scout")))
    assert tool.invalid_arguments({"prompt": prompt}) is not None
    assert tool.invalid_arguments({}) is not None
    assert tool.invalid_arguments({"prompt": "look"}) is None


def test_the_delegate_tool_describes_its_agent() -> None:
    scout = AgentSpec(id=AgentId("scout"), system_prompt="You look things up. " * 20)
    shown = SubagentTool(scout).descriptor
    assert shown.name == "agent_run_scout"
    assert "'scout'" in shown.description
    assert "You look things up." in shown.description
    assert len(shown.description) < 200


async def test_a_child_run_has_the_ids_of_its_parent_and_its_call(database_url: str) -> None:
    catalog, script = agents_with_delegates(boss=BOSS, scout=ScriptedAgent([turn("Blue.")]))
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.ended()
        [child] = await children_of(run)
        [begun] = of_type(await child.finished(), "run_start")
        identity = begun["identity"]
        assert identity["parent_run_id"] == run.id
        assert identity["parent_thread_id"] == run.thread_id
        assert identity["parent_tool_call_id"] == "c1"
        assert identity["origin"] == "subagent"
        [result] = [
            entry.message for entry in await run.log() if entry.message.tool_call_id == "c1"
        ][-1:]
        assert "Blue." in result.text


async def test_only_progress_of_known_calls_is_shown_on_the_parents_stream(
    database_url: str,
) -> None:
    probe = Probe()
    catalog, script = agents_with_delegates(
        boss=BOSS,
        scout=ScriptedAgent([turn(probe.call("p1")), turn("Blue.")], tools=[probe.tool]),
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        shown = of_type(await run.ended(), "activity_snapshot")
        assert {event["message_id"] for event in shown} == {"c1"}
        assert {event["activity_type"] for event in shown} == {"tool-call-progress"}
