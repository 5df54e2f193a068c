"""Remote agents as children: an agent delegates to an agent of another server."""

import asyncio

import pytest

from app.agents.catalog import Catalog
from app.api.schemas.runs.run import run_out
from app.domain.agents.capabilities import REMOTE_STATELESS_TEXT
from app.domain.ids import TaskId
from app.domain.runs.runs import Done
from app.domain.runs.terminations import Cancelled
from app.llm.scripted.model import Call, Gate, Script, ScriptedTurn, turn
from app.queries import records
from tests.support.conditions import eventually
from tests.support.echo_backend import Echo
from tests.support.replicas import ANN, joined, of_type, open_replica
from tests.support.run_trees import (
    ScriptedAgent,
    agents_with_delegates,
    by_transcript,
    children_of,
    family_of,
    opened_below,
    work_for,
)

pytestmark = pytest.mark.anyio


def boss_with(echo: Echo, member: ScriptedAgent) -> tuple[Catalog, Script]:
    catalog, script = agents_with_delegates(boss=member)
    return joined(catalog, echo.catalog), script


def delegates(prompt: str) -> ScriptedTurn:
    return turn(work_for("remote", prompt, id="c1"))


async def test_a_remote_agents_answer_is_the_result_of_the_call(database_url: str) -> None:
    echo = Echo()
    catalog, script = boss_with(
        echo, ScriptedAgent([delegates("say hello"), turn("Thanks.")], delegates=["remote"])
    )
    async with open_replica(database_url, catalog, script, backends=echo.backends) as replica:
        run = await replica.start()
        emitted = await run.ended()
        assert of_type(emitted, "tool_call_resumed")[0]["result"]["data"]["response"] == "hello "
        assert emitted[-1]["result"]["response"] == "Thanks."
    assert len(echo.turns) == 1


async def test_a_remote_childs_question_shows_on_its_parent_and_its_answer_continues_it(
    database_url: str,
) -> None:
    echo = Echo()
    catalog, script = boss_with(
        echo, ScriptedAgent([delegates("ask which one?"), turn("Thanks.")], delegates=["remote"])
    )
    async with open_replica(database_url, catalog, script, backends=echo.backends) as replica:
        run = await replica.start()
        [child] = await family_of(run, 1)
        await child.finished()
        [asked] = await child.tickets()
        [opened] = await opened_below(run, 1)
        assert (opened["ticket"]["id"], opened["child"]["run_id"]) == (asked.id, child.id)
        shown = run_out(await records.read_run(replica.ctx, ANN, run.id)).model_dump()["waiting"]
        assert [each["id"] for each in shown["tickets"] if each["run_id"] == child.id] == [asked.id]
        await child.decide(asked.name, "respond", result="the red one")
        emitted = await run.ended()
    result = of_type(emitted, "tool_call_resumed")[0]["result"]["data"]
    assert result["response"] == "you answered: the red one"


async def test_a_remote_background_agent_gets_messages_as_another_turn(
    database_url: str,
) -> None:
    at_work = Gate()

    def sends(task_id: TaskId) -> ScriptedTurn:
        reported = {"task_id": task_id, "message": "hurry"}
        return turn(at_work, Call(tool="send_message", arguments=reported))

    echo = Echo()
    script = by_transcript(delegates("hang"), sends, turn("Waiting."), turn("Thanks."))
    more = {"background": ["agent_run_remote"]}
    catalog, played = boss_with(echo, ScriptedAgent(script, delegates=["remote"], more=more))
    async with open_replica(database_url, catalog, played, backends=echo.backends) as replica:
        run = await replica.start()
        await asyncio.wait_for(echo.hanging.wait(), 15)
        at_work.open.set()
        await run.finished()
        [child] = await children_of(run)
        await child.until("input_queued")
        echo.released.set()
        await run.ended()
        state = (await child.now()).state
        assert isinstance(state, Done)
        assert state.final_output == "you said: hurry"
    assert [[each.text for each in one.new_messages] for one in echo.turns] == [["hang"], ["hurry"]]


async def test_cancelling_the_parent_aborts_the_remote_turn(database_url: str) -> None:
    echo = Echo()
    catalog, script = boss_with(echo, ScriptedAgent([delegates("hang")], delegates=["remote"]))
    async with open_replica(database_url, catalog, script, backends=echo.backends) as replica:
        run = await replica.start()
        await asyncio.wait_for(echo.hanging.wait(), 15)
        await run.cancel("enough")
        [child] = await children_of(run)

        async def all_done() -> bool:
            return (await child.now()).is_done

        await eventually(all_done)
        state = (await child.now()).state
        assert isinstance(state, Done)
        assert isinstance(state.termination, Cancelled)

        async def reported() -> bool:
            return bool(echo.aborts)

        await eventually(reported)
    assert len(echo.aborts) == 1


async def test_work_beyond_a_delegates_capabilities_is_refused_without_a_child(
    database_url: str,
) -> None:
    echo = Echo(capabilities=REMOTE_STATELESS_TEXT)
    member = ScriptedAgent(
        [delegates("say hello"), turn("Then I do it myself.")],
        delegates=["remote"],
        more={"background": ["agent_run_remote"]},
    )
    catalog, script = boss_with(echo, member)
    async with open_replica(database_url, catalog, script, backends=echo.backends) as replica:
        run = await replica.start()
        emitted = await run.ended()
        assert not await children_of(run)
        [reported] = [entry.message.text for entry in await run.log() if entry.message.tool_call_id]
    [result] = of_type(emitted, "tool_call_done")
    assert result["result"]["outcome"] == "failed"
    assert emitted[-1]["result"]["response"] == "Then I do it myself."
    assert "agent 'remote' backend does not support: continuation" in reported
    assert not echo.turns
