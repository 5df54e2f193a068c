"""Remote agents as children: work that another agent's run passes on to somebody who lives elsewhere."""

import asyncio

import pytest

from app.agents.catalog import Catalog
from app.api.schemas.runs import run_out
from app.domain.agents.capabilities import REMOTE_STATELESS_TEXT
from app.domain.ids import TaskId
from app.domain.runs.runs import Done
from app.domain.runs.terminations import Cancelled
from app.llm.scripted.model import Call, Gate, Script, ScriptedTurn, turn
from app.queries import records
from tests.support.conditions import eventually
from tests.support.echo_backend import Echo
from tests.support.families import Member, by_transcript, children_of, family, family_of, work_for
from tests.support.house import ANN, joined, of_type, replica

pytestmark = pytest.mark.anyio


def boss_of(echo: Echo, member: Member) -> tuple[Catalog, Script]:
    catalog, script = family(boss=member)
    return joined(catalog, echo.catalog), script


def gives(prompt: str) -> ScriptedTurn:
    return turn(work_for("remote", prompt, id="c1"))


async def test_a_remote_agents_answer_is_the_result_of_the_call(database_url: str) -> None:
    echo = Echo()
    catalog, script = boss_of(
        echo, Member([gives("say hello"), turn("Thanks.")], delegates=["remote"])
    )
    async with replica(database_url, catalog, script, backends=echo.backends) as house:
        run = await house.start()
        said = await run.ended()
        assert of_type(said, "tool_call_resumed")[0]["result"]["data"]["response"] == "hello "
        assert said[-1]["result"]["response"] == "Thanks."
    assert len(echo.turns) == 1


async def test_what_a_remote_child_asks_shows_on_its_parent_and_its_answer_goes_on(
    database_url: str,
) -> None:
    echo = Echo()
    catalog, script = boss_of(
        echo, Member([gives("ask which one?"), turn("Thanks.")], delegates=["remote"])
    )
    async with replica(database_url, catalog, script, backends=echo.backends) as house:
        run = await house.start()
        [child] = await family_of(run, 1)
        await child.finished()
        [asked] = await child.tickets()
        shown = run_out(await records.read_run(house.ctx, ANN, run.id)).waiting or {}
        assert [each["id"] for each in shown["tickets_of_children"]] == [asked.id]
        await child.decide(asked.name, "respond", result="the red one")
        said = await run.ended()
    result = of_type(said, "tool_call_resumed")[0]["result"]["data"]
    assert result["response"] == "you answered: the red one"


async def test_a_remote_agent_at_work_in_the_background_gets_messages_as_another_turn(
    database_url: str,
) -> None:
    at_work = Gate()

    def tell(task_id: TaskId) -> ScriptedTurn:
        told = {"task_id": task_id, "message": "hurry"}
        return turn(at_work, Call(tool="send_message", arguments=told))

    echo = Echo()
    script = by_transcript(gives("hang"), tell, turn("Waiting."), turn("Thanks."))
    more = {"background": ["agent_run_remote"]}
    catalog, played = boss_of(echo, Member(script, delegates=["remote"], more=more))
    async with replica(database_url, catalog, played, backends=echo.backends) as house:
        run = await house.start()
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


async def test_a_cancel_of_the_parent_is_told_to_the_remote(database_url: str) -> None:
    echo = Echo()
    catalog, script = boss_of(echo, Member([gives("hang")], delegates=["remote"]))
    async with replica(database_url, catalog, script, backends=echo.backends) as house:
        run = await house.start()
        await asyncio.wait_for(echo.hanging.wait(), 15)
        await run.cancel("enough")
        [child] = await children_of(run)

        async def over() -> bool:
            return (await child.now()).is_done

        await eventually(over)
        state = (await child.now()).state
        assert isinstance(state, Done)
        assert isinstance(state.termination, Cancelled)

        async def told() -> bool:
            return bool(echo.aborts)

        await eventually(told)
    assert len(echo.aborts) == 1


async def test_work_that_its_delegate_cant_do_is_refused_before_there_is_a_child(
    database_url: str,
) -> None:
    echo = Echo(capabilities=REMOTE_STATELESS_TEXT)
    member = Member(
        [gives("say hello"), turn("Then I do it myself.")],
        delegates=["remote"],
        more={"background": ["agent_run_remote"]},
    )
    catalog, script = boss_of(echo, member)
    async with replica(database_url, catalog, script, backends=echo.backends) as house:
        run = await house.start()
        said = await run.ended()
        assert not await children_of(run)
        [told] = [entry.message.text for entry in await run.log() if entry.message.tool_call_id]
    [result] = of_type(said, "tool_call_done")
    assert result["outcome"] == "failed"
    assert said[-1]["result"]["response"] == "Then I do it myself."
    assert "agent 'remote' backend does not support: continuation" in told
    assert not echo.turns
