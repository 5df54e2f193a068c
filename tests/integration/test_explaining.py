"""Explain: each reason why a run doesn't progress has its own code and text."""

import asyncio

import pytest

from app.clock import new_id
from app.domain.errors import NotFound
from app.domain.ids import RunId, Tenant
from app.domain.inference.failures import FailureKind, failed
from app.domain.principals import Principal, Scope
from app.llm.scripted.model import Fail, Gate, in_order, turn
from app.queries.explain import Explanation, explain
from app.queries.explain_reasons import ReasonCode
from tests.support.probes import Probe
from tests.support.replicas import ANN, Replica, Run, an_agent, open_replica
from tests.support.streams import Client

pytestmark = pytest.mark.anyio


async def explained(run: Run) -> Explanation:
    return await explain(run.replica.ctx, ANN, run.id)


async def reasons(run: Run) -> list[ReasonCode]:
    found = await explained(run)
    assert all(reason.text.endswith(".") for reason in found.reasons)
    return [reason.code for reason in found.reasons]


async def reached(gate: Gate) -> None:
    await asyncio.wait_for(gate.reached.wait(), 15)


async def test_an_executing_run_and_the_runs_queued_behind_it(database_url: str) -> None:
    gate = Gate()
    script = in_order(turn(gate, "one"), turn("two"), turn("three"))
    async with open_replica(database_url, an_agent(), script) as replica:
        first = await replica.start()
        await reached(gate)
        behind = [await replica.start(thread_id=first.thread_id) for _ in range(2)]
        executing = await explained(first)
        assert await reasons(first) == [ReasonCode.EXECUTING]
        assert executing.owner is not None
        assert (executing.owner.id, executing.owner.is_alive) == (replica.me, True)
        assert executing.queue_position is None
        for place, run in enumerate(behind, 1):
            found = await explained(run)
            assert await reasons(run) == [ReasonCode.QUEUED_BEHIND_RUN]
            assert (found.queue_position, found.active_run_id) == (place, first.id)
        await first.cancel("enough")
        gate.open.set()
        await first.finished()
        assert await reasons(first) == [ReasonCode.DONE]


async def test_a_run_that_waits_for_tickets_and_the_run_queued_behind_it(database_url: str) -> None:
    probe = Probe(asks=1)
    script = in_order(turn(probe.call("c1"), probe.call("c2")), turn("there"), turn("next"))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        first = await replica.start()
        await first.finished()
        second = await replica.start(thread_id=first.thread_id)
        found, behind = await explained(first), await explained(second)
        assert await reasons(first) == [ReasonCode.WAITING_FOR_TICKETS]
        assert await reasons(second) == [ReasonCode.QUEUED_BEHIND_RUN, ReasonCode.THREAD_WAITING]
        assert [ticket.call_id for ticket in found.waiting_on] == ["c1"]
        assert behind.waiting_on == found.waiting_on
        assert "1 ticket is open" in found.reasons[0].text


async def test_a_run_whose_answer_waits_for_a_worker(database_url: str) -> None:
    probe = Probe(asks=1)
    script = in_order(turn(probe.call("c1")), turn("there"))
    async with open_replica(database_url, an_agent(probe.tool), script, slots=1) as replica:
        run = await replica.start()
        await run.finished()
        assert await replica.worker.slots.reserve_within(15)
        await replica.take_nothing_new()
        await run.decide("c1", "approve")
        found = await explained(run)
        assert [reason.code for reason in found.reasons] == [ReasonCode.DELIVERY_QUEUED]
        assert found.next_attempt_at is not None
        replica.worker.slots.free()


async def test_a_run_without_a_worker_to_execute_it(database_url: str) -> None:
    async with open_replica(database_url, an_agent(), in_order(turn("hi")), slots=1) as replica:
        assert replica.worker.slots.reserve()
        await replica.take_nothing_new()
        run = await replica.start(here=False)
        assert await reasons(run) == [ReasonCode.DELIVERY_QUEUED]
        await _forget(replica)
        assert await reasons(run) == [ReasonCode.DELIVERY_QUEUED, ReasonCode.NO_WORKER]
        replica.worker.slots.free()


async def test_a_run_whose_worker_is_lost(database_url: str) -> None:
    gate = Gate()
    async with open_replica(database_url, an_agent(), in_order(turn(gate, "one"))) as replica:
        run = await replica.start()
        await reached(gate)
        async with open_replica(database_url, an_agent(), in_order(turn("two"))) as witness:
            await witness.take_nothing_new()
            await replica.kill()
            found = await explained(witness.same(run))
            assert [reason.code for reason in found.reasons] == [ReasonCode.OWNER_LOST]
            assert found.owner is not None
            assert not found.owner.is_alive
            assert found.next_attempt_at is not None


async def test_a_run_with_a_cancel_request(database_url: str) -> None:
    gate = Gate()
    async with open_replica(database_url, an_agent(), in_order(turn(gate, "one"))) as replica:
        run = await replica.start()
        await reached(gate)
        await replica.database.pool.execute(
            "UPDATE runs SET cancel_requested_at = now() WHERE id = $1", run.id
        )
        assert await reasons(run) == [ReasonCode.EXECUTING, ReasonCode.CANCEL_REQUESTED]
        gate.open.set()
        await run.finished()


async def test_a_run_whose_agent_version_is_missing(database_url: str) -> None:
    probe = Probe(asks=1)
    with_tool, without = an_agent(probe.tool), an_agent(id="other")
    async with open_replica(database_url, with_tool, in_order(turn(probe.call("c1")))) as replica:
        run = await replica.start()
        await run.finished()
    async with open_replica(database_url, without, in_order(turn("never"))) as replica:
        run = replica.same(run)
        await run.decide("c1", "approve")
        await run.until("run_finish", 2)
        found = await explained(run)
        assert [reason.code for reason in found.reasons] == [ReasonCode.AGENT_VERSION_UNAVAILABLE]
        assert "retry it with the current version" in found.reasons[0].text
        await replica.database.pool.execute(
            "UPDATE runs SET cancel_requested_at = now() WHERE id = $1", run.id
        )
        await replica.database.pool.execute(
            "UPDATE tickets SET applied_at = now() WHERE run_id = $1", run.id
        )
        [_, cancel_reason] = (await explained(run)).reasons
        assert (cancel_reason.code, "again" in cancel_reason.text) == (
            ReasonCode.CANCEL_REQUESTED,
            True,
        )
        assert (await run.cancel()).is_done


@pytest.mark.parametrize(
    ("waiting_reason", "tasks", "why"),
    [
        ("background_tasks", 1, ReasonCode.WAITING_FOR_TASKS),
        ("external_event", 0, ReasonCode.WAITING_FOR_EVENT),
    ],
)
async def test_a_run_that_waits_for_something_other_than_a_ticket(
    database_url: str, waiting_reason: str, tasks: int, why: ReasonCode
) -> None:
    probe = Probe(asks=1)
    async with open_replica(
        database_url, an_agent(probe.tool), in_order(turn(probe.call("c1")))
    ) as replica:
        run = await replica.start()
        await run.finished()
        await replica.database.pool.execute(
            "UPDATE runs SET waiting_reason = $2, open_tasks = $3 WHERE id = $1",
            run.id,
            waiting_reason,
            tasks,
        )
        await replica.database.pool.execute(
            "UPDATE tickets SET status = 'void' WHERE run_id = $1", run.id
        )
        assert await reasons(run) == [why]


async def test_a_finished_run_and_its_reason(database_url: str) -> None:
    script = in_order(turn(Fail(failed(FailureKind.CONTENT_FILTERED, "not this"))), turn("fine"))
    async with open_replica(database_url, an_agent(), script) as replica:
        ended = []
        for _ in range(2):
            run = await replica.start()
            await run.finished()
            assert await reasons(run) == [ReasonCode.DONE]
            ended.append((await explained(run)).last_failure)
    assert ended[0] is not None
    assert ended[0].code == "content_filtered"
    assert ended[1] is None


async def test_a_run_that_lost_several_workers(database_url: str) -> None:
    gate = Gate()
    async with open_replica(database_url, an_agent(), in_order(turn(gate, "one"))) as replica:
        run = await replica.start()
        await reached(gate)
        await replica.database.pool.execute("UPDATE runs SET losses = 2 WHERE id = $1", run.id)
        failure = (await explained(run)).last_failure
        gate.open.set()
        await run.finished()
    assert failure is not None
    assert (failure.code, failure.detail[:9]) == ("worker_lost", "2 workers")


async def test_a_run_of_another_tenant_is_unknown(database_url: str) -> None:
    async with open_replica(database_url, an_agent(), in_order(turn("hi"))) as replica:
        run = await replica.start()
        await run.finished()
        other_tenant = Principal(Tenant("globex"), "eve", frozenset(Scope))
        for principal, run_id in ((other_tenant, run.id), (ANN, RunId(new_id()))):
            with pytest.raises(NotFound, match="run_not_found"):
                await explain(replica.ctx, principal, run_id)


async def test_an_explanation_over_http(client: Client) -> None:
    started = await client.start("quick", 'CALL risky {"what": "it"}')
    waiting = await client.settled(started["id"])
    found = await client.get(f"/v1/runs/{started['id']}/explain")
    assert (found["status"], found["outcome"]) == ("waiting", None)
    assert found["reasons"][0]["code"] == "waiting_for_tickets"
    assert [one["id"] for one in found["waiting_on"]] == [
        one["id"] for one in waiting["waiting"]["tickets"]
    ]
    await client.decide(waiting, "approve")
    await client.settled(started["id"])
    found = await client.get(f"/v1/runs/{started['id']}/explain")
    assert (found["status"], found["outcome"]) == ("done", "succeeded")
    assert found["reasons"][0]["text"] == "The run has ended: natural_end."
    assert (found["owner"], found["last_failure"]) == (None, None)


async def _forget(replica: Replica) -> None:
    await replica.heartbeat.stop()
