"""A run goes on with the agent it was started with, or waits until that can be had again."""

import asyncpg
import pytest

from app.clock import new_id
from app.commands.inputs.send import (
    AcceptedInput,
    InputMode,
    InputRequest,
    ToRun,
    ToThread,
    send_input,
)
from app.commands.runs.new_run import OnActive
from app.domain.errors import NotFound
from app.domain.ids import AgentId, MessageId
from app.domain.runs.runs import Done, RunStatus, Waiting, WaitingReason
from app.domain.runs.terminations import NaturalEnd
from app.domain.threads.messages import Message, Role, Text
from app.domain.tools.tool_calls import INTERRUPTED
from app.llm.scripted.model import Gate, in_order, turn
from app.storage.queue import deliveries
from app.storage.runs import runs
from app.storage.runs.runs import RunKey
from tests.support.conditions import eventually
from tests.support.house import ANN, Replica, Run, an_agent, of_type, replica, texts_of, types_of
from tests.support.invariants import broken_invariants
from tests.support.probes import Probe

pytestmark = pytest.mark.anyio


async def waits_for_its_agent(house: Replica, run: Run, count: int) -> list[dict[str, object]]:
    said = await run.finished(count)
    assert said[-1]["termination"] == {"type": "suspended"}
    record = await run.now()
    assert isinstance(record.state, Waiting)
    assert record.state.reason is WaitingReason.AGENT_VERSION_UNAVAILABLE
    assert "probe" in record.state.message
    await house.sweeper.run_once()
    standing = await runs.status_of_run(house.database.pool, record.tenant, run.id)
    assert standing is not None
    assert standing.is_idle
    return said


async def nothing_more_is_said(house: Replica, run: Run) -> None:
    """However often somebody looks for what has stopped moving."""
    count = "SELECT count(*) FROM events WHERE run_id = $1"
    before = await house.database.pool.fetchval(count, run.id)
    for _ in range(5):
        assert await house.sweeper.run_once() == 0
    assert await house.database.pool.fetchval(count, run.id) == before


async def test_an_answer_outlives_the_tool_that_it_is_for(database_url: str) -> None:
    probe = Probe()
    agent = an_agent(probe.tool, approval=["probe"])
    async with replica(database_url, agent, in_order(turn(probe.call("c1")))) as first:
        run = await first.start()
        await run.finished()
    async with replica(database_url, an_agent(), in_order()) as without:
        run = without.same(run)
        await run.decide("perm_c1", "approve")
        await waits_for_its_agent(without, run, 2)
        await nothing_more_is_said(without, run)
    async with replica(database_url, agent, in_order(turn("done"))) as again:
        run = again.same(run)
        said = await run.ended()
        assert said[-1]["termination"] == {"type": "natural_end"}
        assert texts_of(await run.log())[-2:] == [("tool", "probe did it"), ("assistant", "done")]
    assert len(probe.handed) == 1


async def test_a_step_that_was_cut_short_is_finished_with_its_own_agent(database_url: str) -> None:
    held, behind = Probe(name="probe", effect="read", held=True), Probe(name="behind")
    agent = an_agent(held.tool, behind.tool)
    script = in_order(turn("So.", held.call("c1"), behind.call("c2")))
    async with replica(database_url, agent, script) as first:
        run = await first.start()
        await held.was_reached()
        await first.kill()
    held.open.set()
    async with replica(database_url, an_agent(behind.tool), in_order()) as without:
        said = await waits_for_its_agent(without, without.same(run), 1)
        assert types_of(said)[-2:] == ["step_end", "run_finish"]
        assert (await without.same(run).now()).steps == 0
    async with replica(database_url, agent, in_order(turn("done"))) as again:
        run = again.same(run)
        said = await run.finished(2)
        assert [one["id"] for one in of_type(said, "tool_call_done")] == ["c1", "c2"]
        assert [one["step"] for one in of_type(said, "step_start")] == [1, 1, 2]
        record = await run.now()
        assert (record.steps, record.status) == (2, RunStatus.DONE)
        assert texts_of(await run.log())[1:] == [
            ("assistant", "So."),
            ("tool", "probe did it"),
            ("tool", "behind did it"),
            ("assistant", "done"),
        ]
    assert [len(held.handed), len(behind.handed)] == [2, 1]


async def test_a_message_that_was_cut_short_is_begun_again_by_its_own_agent(
    database_url: str,
) -> None:
    gate, probe = Gate(), Probe()
    agent = an_agent(probe.tool)
    async with replica(database_url, agent, in_order(turn("Hel", gate))) as first:
        run = await first.start()
        await run.until("text_delta")
        await first.kill()
    async with replica(database_url, an_agent(), in_order()) as without:
        said = await waits_for_its_agent(without, without.same(run), 1)
        assert types_of(said)[-3:] == ["stream_reset", "step_end", "run_finish"]
    async with replica(database_url, agent, in_order(turn("Hello"))) as again:
        run = again.same(run)
        await run.finished(2)
        record = await run.now()
        assert isinstance(record.state, Done)
        assert record.state.termination == NaturalEnd()
        assert record.steps == 1
        assert texts_of(await run.log())[1:] == [("assistant", "Hello")]


async def test_a_run_that_waits_for_its_agent_can_be_cancelled(database_url: str) -> None:
    probe = Probe()
    agent = an_agent(probe.tool, approval=["probe"])
    async with replica(database_url, agent, in_order(turn(probe.call("c1")))) as first:
        run = await first.start()
        await run.finished()
    async with replica(database_url, an_agent(), in_order(turn("next"))) as without:
        run = without.same(run)
        await run.decide("perm_c1", "approve")
        await waits_for_its_agent(without, run, 2)
        assert (await run.cancel()).is_settled
        said = await run.finished(3)
        assert said[-1]["termination"] == {"type": "cancelled"}
        assert texts_of(await run.log())[-1] == ("tool", INTERRUPTED)
        following = await without.start("and now?", thread_id=run.thread_id)
        assert (await following.finished())[-1]["termination"] == {"type": "natural_end"}
    assert probe.handed == []


UNHEARD = "UPDATE runs SET cancel_requested_at = now(), cancel_reason = 'unwanted' WHERE id = $1"
IS_CLAIMED = "SELECT status = 'running' AND owner IS NOT NULL FROM runs WHERE id = $1"


async def woken(house: Replica, run: Run) -> None:
    async with house.database.transaction() as connection:
        record = await runs.lock(connection, run.record.tenant, run.id)
        assert record is not None
        key = RunKey(record.tenant, record.thread_id, record.id, record.attempt)
        await deliveries.enqueue(connection, key)


@pytest.mark.parametrize("is_heard", [True, False])
async def test_a_cancel_that_comes_while_an_agent_is_looked_for_takes_effect(
    database_url: str, is_heard: bool
) -> None:
    """Between the claim and the commit that lets the run wait, with and without news of it."""
    held, behind = Probe(name="probe", held=True), Probe(name="behind")
    agent = an_agent(held.tool, behind.tool)
    script = in_order(turn(held.call("c1"), behind.call("c2")))
    async with replica(database_url, agent, script) as first:
        run = await first.start()
        await held.was_reached()
        await first.kill()
    slow = await asyncpg.connect(database_url)
    try:
        async with replica(database_url, an_agent(behind.tool), in_order(turn("next"))) as without:
            run = without.same(run)
            await waits_for_its_agent(without, run, 1)
            async with slow.transaction():
                await slow.execute("LOCK TABLE agents IN ACCESS EXCLUSIVE MODE")
                await woken(without, run)
                await eventually(lambda: without.database.pool.fetchval(IS_CLAIMED, run.id))
                if is_heard:
                    assert not (await run.cancel("unwanted")).is_settled
                else:
                    await slow.execute(UNHEARD, run.id)
            said = await run.ended()
            assert said[-1]["termination"] == {"type": "cancelled", "detail": "unwanted"}
            assert texts_of(await run.log())[2:] == [("tool", INTERRUPTED), ("tool", INTERRUPTED)]
            following = await without.start("and now?", thread_id=run.thread_id)
            assert (await following.finished())[-1]["termination"] == {"type": "natural_end"}
    finally:
        await slow.close()
    assert len(behind.handed) == 0
    assert await broken_invariants(database_url) == {}


async def test_a_run_keeps_its_agent_when_the_file_changes(database_url: str) -> None:
    probe = Probe()
    old = an_agent(probe.tool, approval=["probe"], max_rounds=5)
    async with replica(database_url, old, in_order(turn(probe.call("c1")))) as first:
        run = await first.start()
        await run.finished()
    changed = an_agent(probe.tool, max_rounds=6)
    script = in_order(turn(probe.call("c2")))
    async with replica(database_url, changed, script) as second:
        run = second.same(run)
        await run.decide("perm_c1", "approve")
        said = await run.finished(2)
        assert said[-1]["waiting"]["ticket_ids"] == ["perm_c2"]


async def test_messages_reach_a_run_whose_agent_only_another_process_knows(
    database_url: str,
) -> None:
    probe = Probe(held=True)
    newer, script = an_agent(probe.tool, id="newer"), in_order(turn(probe.call("c1")), turn("Yes."))
    older = an_agent(id="older")
    async with (
        replica(database_url, newer, script) as knows,
        replica(database_url, older, in_order()) as doesnt,
    ):
        run = await knows.start()
        await probe.was_reached()
        reached = [
            (await tell(doesnt, ToRun(run.id), "one")).run.id,
            (await tell(doesnt, ToThread(run.thread_id), "two")).run.id,
        ]
        doesnt.starts_with = AgentId("")
        third = await doesnt.start(
            "three", thread_id=run.thread_id, on_active=OnActive.STEER, here=False
        )
        assert {*reached, third.id} == {run.id}
        probe.open.set()
        await run.ended()
        said = [text for role, text in texts_of(await run.log()) if role == "user"]
        assert said == ["go", "one", "two", "three"]
        with pytest.raises(NotFound) as refused:
            await tell(doesnt, ToThread(run.thread_id), "four")
        assert refused.value.code == "agent_not_found"


async def tell(house: Replica, to: ToRun | ToThread, text: str) -> AcceptedInput:
    message = Message(id=MessageId(new_id()), role=Role.USER, content=(Text(text),))
    request = InputRequest(messages=(message,), mode=InputMode.STEER)
    return await send_input(house.ctx, ANN, to, request, deliver=True)
