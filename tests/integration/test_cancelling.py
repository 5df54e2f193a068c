"""Cancel settles: in every status, whoever executes or doesn't; then the thread takes the next message."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from app.domain.runs.runs import Done, RunStatus
from app.domain.runs.terminations import Cancelled, NaturalEnd
from app.domain.tickets.tickets import TicketStatus
from app.domain.tools.tool_calls import INTERRUPTED
from app.llm.scripted.model import Gate, ScriptedTurn, in_order, turn
from app.queries.wait import wait_until_idle
from app.runtime.ports import ToolContext
from app.tools.functions.decorator import tool
from tests.support.house import Replica, Run, an_agent, of_type, replica, texts_of, types_of
from tests.support.probes import Probe

pytestmark = pytest.mark.anyio

Begin = Callable[[Replica], Awaitable[Run]]


async def reached(gate: Gate) -> None:
    await asyncio.wait_for(gate.reached.wait(), 15)


async def cancelled(run: Run, count: int = 1) -> list[dict[str, object]]:
    """What the run has said once it has ended as somebody wished, and the record says so too."""
    said = await run.finished(count)
    assert said[-1]["termination"] == {"type": "cancelled", "detail": "enough"}
    record = await run.now()
    assert isinstance(record.state, Done)
    assert record.state.termination == Cancelled("enough")
    assert len(of_type(said, "cancel_requested")) == 1
    return said


async def next_message_is_taken(house: Replica, run: Run) -> None:
    following = await house.start("and now?", thread_id=run.thread_id)
    assert (await following.finished())[-1]["termination"] == {"type": "natural_end"}
    thread = await house.database.pool.fetchrow(
        "SELECT open_run_id, queue_length FROM threads WHERE id = $1", run.thread_id
    )
    assert thread is not None
    assert tuple(thread) == (None, 0)


@asynccontextmanager
async def house_of(url: str, probe: Probe, *turns: ScriptedTurn) -> AsyncIterator[Replica]:
    async with replica(url, an_agent(probe.tool), in_order(*turns, turn("next"))) as house:
        yield house


async def test_before_it_was_begun(database_url: str) -> None:
    async with replica(database_url, an_agent(), in_order(turn("next")), slots=1) as house:
        assert house.worker.reserve()
        run = await house.start(here=False)
        answer = await run.cancel("enough")
        assert answer.is_settled
        said = await cancelled(run)
        assert types_of(said) == ["run_created", "cancel_requested", "state_snapshot", "run_finish"]
        assert await run.log() == []
        house.worker.free()
        await next_message_is_taken(house, run)


async def test_while_it_stands_in_line(database_url: str) -> None:
    gate = Gate()
    async with replica(
        database_url, an_agent(), in_order(turn(gate), turn("third"), turn("next"))
    ) as house:
        first = await house.start("one")
        await reached(gate)
        second = await house.start("two", thread_id=first.thread_id)
        third = await house.start("three", thread_id=first.thread_id)
        assert (await second.cancel("enough")).is_settled
        await cancelled(second)
        assert (await first.now()).status is RunStatus.RUNNING
        gate.open.set()
        await third.finished()
        assert [text for _, text in texts_of(await first.log()) if text] == [
            "one",
            "three",
            "third",
        ]
        await next_message_is_taken(house, first)


async def test_while_the_model_is_asked(database_url: str) -> None:
    gate = Gate()
    async with house_of(database_url, Probe(), turn("Hel", gate, "lo")) as house:
        run = await house.start()
        await reached(gate)
        answer = await run.cancel("enough")
        assert not answer.is_settled
        await cancelled(run)
        assert texts_of(await run.log()) == [("user", "go"), ("assistant", "Hel")]
        await next_message_is_taken(house, run)


async def test_while_a_tool_runs(database_url: str) -> None:
    probe = Probe(held=True)
    async with house_of(database_url, probe, turn(probe.call("c1"), probe.call("c2"))) as house:
        run = await house.start()
        await probe.was_reached()
        await run.cancel("enough")
        said = await cancelled(run)
        done = {one["id"]: one["outcome"] for one in of_type(said, "tool_call_done")}
        assert done == {"c1": "failed", "c2": "failed"}
        assert texts_of(await run.log())[2:] == [("tool", INTERRUPTED)] * 2
        assert await run.calls() == {}
        await next_message_is_taken(house, run)
    assert len(probe.handed) == 1


async def test_while_it_waits_for_an_answer(database_url: str) -> None:
    probe = Probe(asks=1)
    async with house_of(database_url, probe, turn(probe.call("c1"))) as house:
        run = await house.start()
        await run.finished()
        assert (await run.cancel("enough")).is_settled
        said = await cancelled(run, 2)
        ends_with = ["cancel_requested", "tool_call_done", "state_snapshot", "run_finish"]
        assert types_of(said)[-4:] == ends_with
        assert [ticket.status for ticket in await run.tickets()] == [TicketStatus.VOID]
        assert texts_of(await run.log())[-1] == ("tool", INTERRUPTED)
        await next_message_is_taken(house, run)


async def test_while_an_answer_is_applied(database_url: str) -> None:
    probe = Probe(asks=1)
    async with house_of(database_url, probe, turn(probe.call("c1"))) as house:
        run = await house.start()
        await run.finished()
        probe.held = True
        probe.reached.clear()
        await run.decide("c1", "approve", result="yes")
        await probe.was_reached()
        await run.cancel("enough")
        await cancelled(run, 2)
        await next_message_is_taken(house, run)


async def test_after_its_end_nothing_changes(database_url: str) -> None:
    async with house_of(database_url, Probe(), turn("Hello")) as house:
        run = await house.start()
        said = await run.finished()
        answer = await run.cancel("enough")
        assert answer.is_settled
        assert isinstance(answer.run.state, Done)
        assert answer.run.state.termination == NaturalEnd()
        assert await run.finished() == said


async def test_twice_is_once(database_url: str) -> None:
    gate = Gate()
    async with house_of(database_url, Probe(), turn("Hel", gate)) as house:
        run = await house.start()
        await reached(gate)
        await asyncio.gather(*(run.cancel("enough") for _ in range(5)))
        await cancelled(run)


async def test_from_another_replica(database_url: str) -> None:
    gate = Gate()
    async with (
        house_of(database_url, Probe(), turn("Hel", gate)) as house,
        replica(database_url, an_agent(Probe().tool), in_order()) as other,
    ):
        run = await house.start()
        await reached(gate)
        await other.same(run).cancel("enough")
        await cancelled(run)


async def test_a_wish_whose_hint_was_lost_is_found(database_url: str) -> None:
    gate = Gate()
    async with house_of(database_url, Probe(), turn("Hel", gate)) as house:
        run = await house.start()
        await reached(gate)
        await house.database.pool.execute(
            "UPDATE runs SET cancel_requested_at = now(), cancel_reason = 'enough'"
        )
        said = await run.finished()
        assert said[-1]["termination"] == {"type": "cancelled", "detail": "enough"}


@pytest.mark.parametrize("in_a_tool", [False, True])
async def test_when_its_worker_is_dead(database_url: str, in_a_tool: bool) -> None:
    gate, probe = Gate(), Probe(held=True)
    played = turn(probe.call("c1")) if in_a_tool else turn("Hel", gate)
    async with house_of(database_url, probe, played) as house:
        run = await house.start()
        await (probe.was_reached() if in_a_tool else reached(gate))
        await run.until("step_start")
        await house.kill()
    async with replica(database_url, an_agent(probe.tool), in_order(), slots=0) as bystander:
        assert not (await bystander.same(run).cancel("enough")).is_settled
    script = in_order(turn("next"))
    async with replica(database_url, an_agent(probe.tool), script) as other:
        run = other.same(run)
        await cancelled(run)
        assert script.requests == []
        if in_a_tool:
            assert texts_of(await run.log())[-1] == ("tool", INTERRUPTED)
        await next_message_is_taken(other, run)
    assert len(probe.handed) == in_a_tool


async def test_it_outweighs_a_hand_over(database_url: str) -> None:
    probe = Probe(held=True)
    async with house_of(database_url, probe, turn(probe.call("c1"))) as house:
        run = await house.start()
        await probe.was_reached()
        async with asyncio.TaskGroup() as group:
            stopping = group.create_task(house.worker.stop(grace=15))
            await house.worker._stopping.wait()
            assert not stopping.done()
            await run.cancel("enough")
        await cancelled(run)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2), (2, 0, 3, 1)])
async def test_a_whole_line_is_cancelled_in_any_order(
    database_url: str, order: tuple[int, ...]
) -> None:
    async with replica(database_url, an_agent(), in_order(turn("next")), slots=1) as house:
        assert house.worker.reserve()
        first = await house.start("0", here=False)
        line = [first]
        for number in range(1, 4):
            line.append(await house.start(str(number), thread_id=first.thread_id))
        for place in order:
            assert (await line[place].cancel("enough")).is_settled
        for run in line:
            await cancelled(run)
        house.worker.free()
        await next_message_is_taken(house, first)


async def test_a_run_does_not_come_to_rest_over_a_wish(database_url: str) -> None:
    """The wish is committed while the run executes, and the run waits before it hears of it."""

    @tool(name="probe")
    async def wished_away(ctx: ToolContext) -> object:
        await house.database.pool.execute(
            "UPDATE runs SET cancel_requested_at = now(), cancel_reason = 'enough' WHERE id = $1",
            ctx.run_id,
        )
        return ctx.suspend("Shall I?")

    script = in_order(turn(Probe().call("c1")), turn("next"))
    async with replica(database_url, an_agent(wished_away), script) as house:
        run = await house.start()
        record = run.record
        assert await wait_until_idle(
            house.ctx, record.tenant, record.thread_id, run.id, 15, only_done=True
        )
        state = (await run.now()).state
        assert isinstance(state, Done)
        assert state.termination == Cancelled("enough")
        assert {ticket.status for ticket in await run.tickets()} <= {TicketStatus.VOID}
        await next_message_is_taken(house, run)
