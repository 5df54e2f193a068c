"""A run continues with the agent version that started it, or waits until that is available."""

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
from app.domain.tickets.tickets import TicketStatus
from app.domain.tools.tool_calls import INTERRUPTED
from app.llm.scripted.model import Gate, in_order, turn
from app.storage.queue import deliveries
from app.storage.runs import runs
from app.storage.runs.runs import RunKey
from tests.support.conditions import eventually
from tests.support.finishes import asked_by
from tests.support.invariants import broken_invariants
from tests.support.probes import Probe
from tests.support.replicas import (
    ANN,
    Replica,
    Run,
    an_agent,
    of_type,
    open_replica,
    texts_of,
    types_of,
)

pytestmark = pytest.mark.anyio


async def suspended_without_its_agent(
    replica: Replica, run: Run, count: int
) -> list[dict[str, object]]:
    emitted = await run.finished(count)
    assert emitted[-1]["termination"] == {"type": "suspended"}
    record = await run.now()
    assert isinstance(record.state, Waiting)
    assert record.state.reason is WaitingReason.AGENT_VERSION_UNAVAILABLE
    assert "probe" in record.state.message
    await replica.sweeper.run_once()
    run_status = await runs.status_of_run(replica.database.pool, record.tenant, run.id)
    assert run_status is not None
    still_open = [t for t in await run.tickets() if t.status is TicketStatus.OPEN]
    assert run_status.needs_decision is bool(still_open)
    return emitted


async def assert_no_new_events(replica: Replica, run: Run) -> None:
    """The sweeper finds no run to deliver, however often it runs."""
    count = "SELECT count(*) FROM events WHERE run_id = $1"
    before = await replica.database.pool.fetchval(count, run.id)
    for _ in range(5):
        assert await replica.sweeper.run_once() == 0
    assert await replica.database.pool.fetchval(count, run.id) == before


async def test_a_decision_is_applied_once_the_missing_tool_is_available_again(
    database_url: str,
) -> None:
    probe = Probe()
    agent = an_agent(probe.tool, approval=["probe"])
    async with open_replica(database_url, agent, in_order(turn(probe.call("c1")))) as first:
        run = await first.start()
        await run.finished()
    async with open_replica(database_url, an_agent(), in_order()) as without_tool:
        run = without_tool.same(run)
        await run.decide("perm_c1", "approve")
        await suspended_without_its_agent(without_tool, run, 2)
        await assert_no_new_events(without_tool, run)
    async with open_replica(database_url, agent, in_order(turn("done"))) as again:
        run = again.same(run)
        emitted = await run.ended()
        assert emitted[-1]["termination"] == {"type": "natural_end"}
        assert texts_of(await run.log())[-2:] == [("tool", "probe did it"), ("assistant", "done")]
    assert len(probe.handed) == 1


async def test_an_interrupted_step_is_finished_by_the_agent_version_that_began_it(
    database_url: str,
) -> None:
    held, behind = Probe(name="probe", effect="read", held=True), Probe(name="behind")
    agent = an_agent(held.tool, behind.tool)
    script = in_order(turn("So.", held.call("c1"), behind.call("c2")))
    async with open_replica(database_url, agent, script) as first:
        run = await first.start()
        await held.was_reached()
        await first.kill()
    held.open.set()
    async with open_replica(database_url, an_agent(behind.tool), in_order()) as without_tool:
        emitted = await suspended_without_its_agent(without_tool, without_tool.same(run), 1)
        assert types_of(emitted)[-2:] == ["step_end", "run_finish"]
        assert (await without_tool.same(run).now()).steps == 0
    async with open_replica(database_url, agent, in_order(turn("done"))) as again:
        run = again.same(run)
        emitted = await run.finished(2)
        assert [one["tool_call_id"] for one in of_type(emitted, "tool_call_done")] == ["c1", "c2"]
        assert [one["step"] for one in of_type(emitted, "step_start")] == [1, 1, 2]
        record = await run.now()
        assert (record.steps, record.status) == (2, RunStatus.DONE)
        assert texts_of(await run.log())[1:] == [
            ("assistant", "So."),
            ("tool", "probe did it"),
            ("tool", "behind did it"),
            ("assistant", "done"),
        ]
    assert [len(held.handed), len(behind.handed)] == [2, 1]


async def test_an_interrupted_message_is_repeated_by_the_agent_version_that_began_it(
    database_url: str,
) -> None:
    gate, probe = Gate(), Probe()
    agent = an_agent(probe.tool)
    async with open_replica(database_url, agent, in_order(turn("Hel", gate))) as first:
        run = await first.start()
        await run.until("text_delta")
        await first.kill()
    async with open_replica(database_url, an_agent(), in_order()) as without_tool:
        emitted = await suspended_without_its_agent(without_tool, without_tool.same(run), 1)
        assert types_of(emitted)[-3:] == ["stream_reset", "step_end", "run_finish"]
    async with open_replica(database_url, agent, in_order(turn("Hello"))) as again:
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
    async with open_replica(database_url, agent, in_order(turn(probe.call("c1")))) as first:
        run = await first.start()
        await run.finished()
    async with open_replica(database_url, an_agent(), in_order(turn("next"))) as without_tool:
        run = without_tool.same(run)
        await run.decide("perm_c1", "approve")
        await suspended_without_its_agent(without_tool, run, 2)
        assert (await run.cancel()).is_done
        emitted = await run.finished(3)
        assert emitted[-1]["termination"] == {"type": "cancelled"}
        assert texts_of(await run.log())[-1] == ("tool", INTERRUPTED)
        following = await without_tool.start("and now?", thread_id=run.thread_id)
        assert (await following.finished())[-1]["termination"] == {"type": "natural_end"}
    assert probe.handed == []


REQUEST_CANCEL = (
    "UPDATE runs SET cancel_requested_at = now(), cancel_reason = 'unwanted' WHERE id = $1"
)
IS_CLAIMED = "SELECT status = 'running' AND owner IS NOT NULL FROM runs WHERE id = $1"


async def deliver_again(replica: Replica, run: Run) -> None:
    async with replica.database.transaction() as connection:
        record = await runs.lock(connection, run.record.tenant, run.id)
        assert record is not None
        key = RunKey(record.tenant, record.thread_id, record.id, record.attempt)
        await deliveries.enqueue(connection, key)


@pytest.mark.parametrize("is_received", [True, False])
async def test_a_cancel_between_a_claim_and_its_suspension_for_a_missing_agent_takes_effect(
    database_url: str, is_received: bool
) -> None:
    """The cancel is committed between the claim and the suspension, with and without its notification."""
    held, behind = Probe(name="probe", held=True), Probe(name="behind")
    agent = an_agent(held.tool, behind.tool)
    script = in_order(turn(held.call("c1"), behind.call("c2")))
    async with open_replica(database_url, agent, script) as first:
        run = await first.start()
        await held.was_reached()
        await first.kill()
    slow = await asyncpg.connect(database_url)
    try:
        async with open_replica(
            database_url, an_agent(behind.tool), in_order(turn("next"))
        ) as without_tool:
            run = without_tool.same(run)
            await suspended_without_its_agent(without_tool, run, 1)
            async with slow.transaction():
                await slow.execute("LOCK TABLE agents IN ACCESS EXCLUSIVE MODE")
                await deliver_again(without_tool, run)
                await eventually(lambda: without_tool.database.pool.fetchval(IS_CLAIMED, run.id))
                if is_received:
                    assert not (await run.cancel("unwanted")).is_done
                else:
                    await slow.execute(REQUEST_CANCEL, run.id)
            emitted = await run.ended()
            assert emitted[-1]["termination"] == {"type": "cancelled", "detail": "unwanted"}
            assert texts_of(await run.log())[2:] == [("tool", INTERRUPTED), ("tool", INTERRUPTED)]
            following = await without_tool.start("and now?", thread_id=run.thread_id)
            assert (await following.finished())[-1]["termination"] == {"type": "natural_end"}
    finally:
        await slow.close()
    assert len(behind.handed) == 0
    assert await broken_invariants(database_url) == {}


async def test_a_run_keeps_its_agent_when_the_file_changes(database_url: str) -> None:
    probe = Probe()
    old = an_agent(probe.tool, approval=["probe"], max_rounds=5)
    async with open_replica(database_url, old, in_order(turn(probe.call("c1")))) as first:
        run = await first.start()
        await run.finished()
    changed = an_agent(probe.tool, max_rounds=6)
    script = in_order(turn(probe.call("c2")))
    async with open_replica(database_url, changed, script) as second:
        run = second.same(run)
        await run.decide("perm_c1", "approve")
        emitted = await run.finished(2)
        assert asked_by(emitted[-1]) == ["perm_c2"]


async def test_messages_reach_a_run_whose_agent_only_another_process_knows(
    database_url: str,
) -> None:
    probe = Probe(held=True)
    newer, script = an_agent(probe.tool, id="newer"), in_order(turn(probe.call("c1")), turn("Yes."))
    older = an_agent(id="older")
    async with (
        open_replica(database_url, newer, script) as with_probe,
        open_replica(database_url, older, in_order()) as without_probe,
    ):
        run = await with_probe.start()
        await probe.was_reached()
        reached = [
            (await steer(without_probe, ToRun(run.id), "one")).run.id,
            (await steer(without_probe, ToThread(run.thread_id), "two")).run.id,
        ]
        without_probe.starts_with = AgentId("")
        third = await without_probe.start(
            "three", thread_id=run.thread_id, on_active=OnActive.STEER, here=False
        )
        assert {*reached, third.id} == {run.id}
        probe.open.set()
        await run.ended()
        emitted = [text for role, text in texts_of(await run.log()) if role == "user"]
        assert emitted == ["go", "one", "two", "three"]
        with pytest.raises(NotFound) as refused:
            await steer(without_probe, ToThread(run.thread_id), "four")
        assert refused.value.code == "agent_not_found"


async def steer(replica: Replica, to: ToRun | ToThread, text: str) -> AcceptedInput:
    message = Message(id=MessageId(new_id()), role=Role.USER, content=(Text(text),))
    request = InputRequest(messages=(message,), mode=InputMode.STEER)
    return await send_input(replica.ctx, ANN, to, request, deliver=True)
