"""A cancel ends the run in every status, executing or not. Then the thread takes the next message."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from app.domain.runs.runs import Done, RunStatus
from app.domain.runs.terminations import Cancelled, NaturalEnd
from app.domain.tickets.tickets import TicketStatus
from app.domain.tools.tool_calls import INTERRUPTED
from app.llm.scripted.model import Gate, ScriptedTurn, in_order, turn
from app.queries.wait import wait_until_settled
from app.runtime.ports.tool_context import ToolContext
from app.tools.functions.decorator import tool
from tests.support.probes import Probe
from tests.support.replicas import Replica, Run, an_agent, of_type, open_replica, texts_of, types_of

pytestmark = pytest.mark.anyio

Begin = Callable[[Replica], Awaitable[Run]]


async def reached(gate: Gate) -> None:
    await asyncio.wait_for(gate.reached.wait(), 15)


async def assert_cancelled(run: Run, count: int = 1) -> list[dict[str, object]]:
    """The events of a run that has ended as cancelled, in the log and in its record."""
    emitted = await run.finished(count)
    assert emitted[-1]["termination"] == {"type": "cancelled", "detail": "enough"}
    record = await run.now()
    assert isinstance(record.state, Done)
    assert record.state.termination == Cancelled("enough")
    assert len(of_type(emitted, "cancel_requested")) == 1
    return emitted


async def next_message_is_taken(replica: Replica, run: Run) -> None:
    following = await replica.start("and now?", thread_id=run.thread_id)
    assert (await following.finished())[-1]["termination"] == {"type": "natural_end"}
    thread = await replica.database.pool.fetchrow(
        "SELECT open_run_id, queue_length FROM threads WHERE id = $1", run.thread_id
    )
    assert thread is not None
    assert tuple(thread) == (None, 0)


@asynccontextmanager
async def system_of(url: str, probe: Probe, *turns: ScriptedTurn) -> AsyncIterator[Replica]:
    async with open_replica(url, an_agent(probe.tool), in_order(*turns, turn("next"))) as replica:
        yield replica


async def test_cancel_before_the_run_is_claimed(database_url: str) -> None:
    async with open_replica(database_url, an_agent(), in_order(turn("next")), slots=1) as replica:
        assert replica.worker.slots.reserve()
        run = await replica.start(here=False)
        answer = await run.cancel("enough")
        assert answer.is_done
        emitted = await assert_cancelled(run)
        assert types_of(emitted) == [
            "run_created",
            "cancel_requested",
            "state_snapshot",
            "run_finish",
        ]
        assert await run.log() == []
        replica.worker.slots.free()
        await next_message_is_taken(replica, run)


async def test_cancel_while_the_run_is_queued(database_url: str) -> None:
    gate = Gate()
    async with open_replica(
        database_url, an_agent(), in_order(turn(gate), turn("third"), turn("next"))
    ) as replica:
        first = await replica.start("one")
        await reached(gate)
        second = await replica.start("two", thread_id=first.thread_id)
        third = await replica.start("three", thread_id=first.thread_id)
        assert (await second.cancel("enough")).is_done
        await assert_cancelled(second)
        assert (await first.now()).status is RunStatus.RUNNING
        gate.open.set()
        await third.finished()
        assert [text for _, text in texts_of(await first.log()) if text] == [
            "one",
            "three",
            "third",
        ]
        await next_message_is_taken(replica, first)


async def test_cancel_during_an_inference(database_url: str) -> None:
    gate = Gate()
    async with system_of(database_url, Probe(), turn("Hel", gate, "lo")) as replica:
        run = await replica.start()
        await reached(gate)
        answer = await run.cancel("enough")
        assert not answer.is_done
        await assert_cancelled(run)
        assert texts_of(await run.log()) == [("user", "go"), ("assistant", "Hel")]
        await next_message_is_taken(replica, run)


async def test_cancel_during_a_tool_call(database_url: str) -> None:
    probe = Probe(held=True)
    async with system_of(database_url, probe, turn(probe.call("c1"), probe.call("c2"))) as replica:
        run = await replica.start()
        await probe.was_reached()
        await run.cancel("enough")
        emitted = await assert_cancelled(run)
        done = {
            one["tool_call_id"]: one["result"]["outcome"]
            for one in of_type(emitted, "tool_call_done")
        }
        assert done == {"c1": "failed", "c2": "failed"}
        assert texts_of(await run.log())[2:] == [("tool", INTERRUPTED)] * 2
        assert await run.calls() == {}
        await next_message_is_taken(replica, run)
    assert len(probe.handed) == 1


async def test_cancel_while_the_run_waits_for_a_decision(database_url: str) -> None:
    probe = Probe(asks=1)
    async with system_of(database_url, probe, turn(probe.call("c1"))) as replica:
        run = await replica.start()
        await run.finished()
        assert (await run.cancel("enough")).is_done
        emitted = await assert_cancelled(run, 2)
        ends_with = ["cancel_requested", "tool_call_done", "state_snapshot", "run_finish"]
        assert types_of(emitted)[-4:] == ends_with
        assert [ticket.status for ticket in await run.tickets()] == [TicketStatus.VOID]
        assert texts_of(await run.log())[-1] == ("tool", INTERRUPTED)
        await next_message_is_taken(replica, run)


async def test_cancel_while_a_decision_is_applied(database_url: str) -> None:
    probe = Probe(asks=1)
    async with system_of(database_url, probe, turn(probe.call("c1"))) as replica:
        run = await replica.start()
        await run.finished()
        probe.held = True
        probe.reached.clear()
        await run.decide("c1", "approve", result="yes")
        await probe.was_reached()
        await run.cancel("enough")
        await assert_cancelled(run, 2)
        await next_message_is_taken(replica, run)


async def test_cancel_after_the_end_changes_nothing(database_url: str) -> None:
    async with system_of(database_url, Probe(), turn("Hello")) as replica:
        run = await replica.start()
        emitted = await run.finished()
        answer = await run.cancel("enough")
        assert answer.is_done
        assert isinstance(answer.state, Done)
        assert answer.state.termination == NaturalEnd()
        assert await run.finished() == emitted


async def test_a_repeated_cancel_has_one_effect(database_url: str) -> None:
    gate = Gate()
    async with system_of(database_url, Probe(), turn("Hel", gate)) as replica:
        run = await replica.start()
        await reached(gate)
        await asyncio.gather(*(run.cancel("enough") for _ in range(5)))
        await assert_cancelled(run)


async def test_cancel_from_another_replica(database_url: str) -> None:
    gate = Gate()
    async with (
        system_of(database_url, Probe(), turn("Hel", gate)) as replica,
        open_replica(database_url, an_agent(Probe().tool), in_order()) as other,
    ):
        run = await replica.start()
        await reached(gate)
        await other.same(run).cancel("enough")
        await assert_cancelled(run)


async def test_a_cancel_request_whose_notification_was_lost_is_found(database_url: str) -> None:
    gate = Gate()
    async with system_of(database_url, Probe(), turn("Hel", gate)) as replica:
        run = await replica.start()
        await reached(gate)
        await replica.database.pool.execute(
            "UPDATE runs SET cancel_requested_at = now(), cancel_reason = 'enough'"
        )
        emitted = await run.finished()
        assert emitted[-1]["termination"] == {"type": "cancelled", "detail": "enough"}


@pytest.mark.parametrize("in_a_tool", [False, True])
async def test_cancel_of_a_run_whose_worker_is_dead(database_url: str, in_a_tool: bool) -> None:
    gate, probe = Gate(), Probe(held=True)
    played = turn(probe.call("c1")) if in_a_tool else turn("Hel", gate)
    async with system_of(database_url, probe, played) as replica:
        run = await replica.start()
        await (probe.was_reached() if in_a_tool else reached(gate))
        await run.until("step_start")
        await replica.kill()
    async with open_replica(database_url, an_agent(probe.tool), in_order(), slots=0) as bystander:
        assert not (await bystander.same(run).cancel("enough")).is_done
    script = in_order(turn("next"))
    async with open_replica(database_url, an_agent(probe.tool), script) as other:
        run = other.same(run)
        await assert_cancelled(run)
        assert script.requests == []
        if in_a_tool:
            assert texts_of(await run.log())[-1] == ("tool", INTERRUPTED)
        await next_message_is_taken(other, run)
    assert len(probe.handed) == in_a_tool


async def test_a_cancel_takes_precedence_over_a_hand_over(database_url: str) -> None:
    probe = Probe(held=True)
    async with system_of(database_url, probe, turn(probe.call("c1"))) as replica:
        run = await replica.start()
        await probe.was_reached()
        async with asyncio.TaskGroup() as group:
            stopping = group.create_task(replica.worker.stop(grace=15))
            await replica.worker.slots.stopping.wait()
            assert not stopping.done()
            await run.cancel("enough")
        await assert_cancelled(run)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2), (2, 0, 3, 1)])
async def test_queued_runs_of_a_thread_can_be_cancelled_in_any_order(
    database_url: str, order: tuple[int, ...]
) -> None:
    async with open_replica(database_url, an_agent(), in_order(turn("next")), slots=1) as replica:
        assert replica.worker.slots.reserve()
        first = await replica.start("0", here=False)
        queued_runs = [first]
        for number in range(1, 4):
            queued_runs.append(await replica.start(str(number), thread_id=first.thread_id))
        for place in order:
            assert (await queued_runs[place].cancel("enough")).is_done
        for run in queued_runs:
            await assert_cancelled(run)
        replica.worker.slots.free()
        await next_message_is_taken(replica, first)


async def test_a_run_with_a_cancel_request_ends_instead_of_suspending(database_url: str) -> None:
    """The cancel request is committed while the run executes, before its suspension and without a notification."""

    @tool(name="probe")
    async def cancels_itself(ctx: ToolContext) -> object:
        await replica.database.pool.execute(
            "UPDATE runs SET cancel_requested_at = now(), cancel_reason = 'enough' WHERE id = $1",
            ctx.run.id,
        )
        return ctx.suspend("Shall I?")

    script = in_order(turn(Probe().call("c1")), turn("next"))
    async with open_replica(database_url, an_agent(cancels_itself), script) as replica:
        run = await replica.start()
        record = run.record
        assert await wait_until_settled(
            replica.ctx, record.tenant, record.thread_id, run.id, 15, only_done=True
        )
        state = (await run.now()).state
        assert isinstance(state, Done)
        assert state.termination == Cancelled("enough")
        assert {ticket.status for ticket in await run.tickets()} <= {TicketStatus.VOID}
        await next_message_is_taken(replica, run)
