"""A worker dies in the middle: another one goes on where the log stands, and repeats nothing unsafe."""

import asyncio

import pytest

from app.domain.runs.runs import Done, RunFilter, RunStatus
from app.domain.runs.terminations import Failed, NaturalEnd, Outcome
from app.domain.threads.messages import Role
from app.domain.tickets.tickets import TicketKind
from app.domain.tools.tool_calls import INTERRUPTED
from app.llm.scripted.model import Gate, in_order, turn
from app.queries.explain import explain
from app.queries.records import list_runs
from app.storage.runs.runs import RunKey
from tests.support.conditions import eventually
from tests.support.event_order import check_run
from tests.support.house import ANN, Replica, Run, an_agent, of_type, replica, texts_of, types_of
from tests.support.probes import Probe

pytestmark = pytest.mark.anyio

NOBODY = RunFilter(outcome=Outcome.SUCCEEDED, termination_code="worker_lost")


async def reached(gate: Gate) -> None:
    await asyncio.wait_for(gate.reached.wait(), 15)


async def test_before_the_inference_the_step_begins_again(database_url: str) -> None:
    gate = Gate()
    async with replica(database_url, an_agent(), in_order(turn(gate, "lost"))) as first:
        run = await first.start()
        await reached(gate)
        await run.until("step_start")
        await first.kill()
    async with replica(database_url, an_agent(), in_order(turn("Hello"))) as second:
        run = second.same(run)
        said = await run.finished()
        record = await run.now()
        assert texts_of(await run.log()) == [("user", "go"), ("assistant", "Hello")]
    assert types_of(said)[:5] == [
        "run_created",
        "run_start",
        "step_start",
        "stream_reset",
        "text_delta",
    ]
    assert said[3]["reason"] == "takeover"
    assert {event.get("step") for event in said[2:6]} == {1}
    assert len(of_type(said, "run_start")) == len(of_type(said, "step_start")) == 1
    assert (record.attempt, record.losses, record.steps) == (2, 0, 1)


async def test_in_the_middle_of_a_message_the_message_begins_again(database_url: str) -> None:
    gate = Gate()
    probe = Probe()
    script = in_order(turn(probe.call("c1")), turn("Hel", gate, "lo"))
    async with replica(database_url, an_agent(probe.tool), script) as first:
        run = await first.start()
        await reached(gate)
        await run.until("text_delta")
        await first.kill()
    script = in_order(turn("Hello"))
    async with replica(database_url, an_agent(probe.tool), script) as second:
        run = second.same(run)
        said = await run.finished()
        assert texts_of(await run.log())[-1] == ("assistant", "Hello")
    reset = types_of(said).index("stream_reset")
    assert said[reset]["step"] == 2
    assert "".join(one["delta"] for one in of_type(said[reset:], "text_delta")) == "Hello"
    assert [one["step"] for one in of_type(said, "step_end")] == [1, 2]
    assert len(probe.handed) == 1
    assert [message.role for message in script.requests[0].messages] == [
        Role.USER,
        Role.ASSISTANT,
        Role.TOOL,
    ]


@pytest.mark.parametrize("effect", ["read", "idempotent"])
async def test_a_call_that_may_be_repeated_is_repeated_under_its_key(
    database_url: str, effect: str
) -> None:
    before, held = Probe(name="before"), Probe(name="held", held=True)
    held.effect = "read" if effect == "read" else "idempotent"
    behind = Probe(name="behind")
    agent = an_agent(before.tool, held.tool, behind.tool)
    script = in_order(turn(before.call("c1"), held.call("c2"), behind.call("c3")))
    async with replica(database_url, agent, script) as first:
        run = await first.start()
        await held.was_reached()
        await first.kill()
    held.open.set()
    async with replica(database_url, agent, in_order(turn("done"))) as second:
        run = second.same(run)
        said = await run.finished()
        assert texts_of(await run.log())[2:] == [
            ("tool", "before did it"),
            ("tool", "held did it"),
            ("tool", "behind did it"),
            ("assistant", "done"),
        ]
    assert "stream_reset" not in types_of(said)
    assert [len(probe.handed) for probe in (before, held, behind)] == [1, 2, 1]
    assert held.handed[0] == held.handed[1]
    assert [done["id"] for done in of_type(said, "tool_call_done")] == ["c1", "c2", "c3"]
    assert len(of_type(said, "run_start")) == 1


async def lost_over_an_unsafe_call(url: str, probe: Probe) -> Run:
    """A run whose worker was killed while the tool had the call; its outcome is asked for."""
    agent, behind = an_agent(probe.tool), "c2"
    script = in_order(turn(probe.call("c1", "this"), probe.call(behind, "that")))
    async with replica(url, agent, script) as first:
        run = await first.start()
        await probe.was_reached()
        await first.kill()
    probe.open.set()
    return run


async def resting(house: Replica, run: Run) -> Run:
    """The run once another replica has come to ask."""
    taken = house.same(run)
    said = await taken.finished()
    assert said[-1]["waiting"]["ticket_ids"] == ["unknown_c1"]
    return taken


@pytest.mark.parametrize(
    "action, more, handed, told",
    [
        ("respond", {"result": "it had run"}, ["this", "that"], "it had run"),
        ("approve", {}, ["this", "that", "this"], "probe did this"),
        ("cancel", {"reason": "leave it"}, ["this", "that"], "leave it"),
    ],
)
async def test_a_call_that_must_not_be_repeated_is_asked_about(
    database_url: str, action: str, more: dict[str, object], handed: list[str], told: str
) -> None:
    probe = Probe(held=True)
    run = await lost_over_an_unsafe_call(database_url, probe)
    script = in_order(turn("done"))
    async with replica(database_url, an_agent(probe.tool), script) as second:
        run = await resting(second, run)
        [ticket] = await run.tickets()
        assert ticket.kind is TicketKind.OUTCOME_UNKNOWN
        assert ticket.evidence is not None
        assert ticket.evidence["idempotency_key"] == probe.handed[0].idempotency_key
        assert ticket.evidence["started_at"] < ticket.created_at.isoformat()
        assert ticket.evidence["ran_with"] == ticket.arguments == {"text": "this"}
        # What stands behind the call goes on: its outcome isn't in doubt.
        assert [one.text for one in probe.handed] == ["this", "that"]
        assert len(script.requests) == 0
        await run.decide("unknown_c1", action, **more)
        said = await run.finished(2)
        assert said[-1]["termination"] == {"type": "natural_end"}
    assert [one.text for one in probe.handed] == handed
    shown = {m.tool_call_id: m.text for m in script.requests[0].messages if m.tool_call_id}
    assert shown == {"c1": told, "c2": "probe did that"}
    assert probe.handed[-1].idempotency_key in {one.idempotency_key for one in probe.handed[:2]}


async def test_a_result_that_was_saved_is_never_made_again(database_url: str) -> None:
    first_tool, second_tool = Probe(name="first"), Probe(name="second", held=True)
    agent = an_agent(first_tool.tool, second_tool.tool)
    script = in_order(turn(first_tool.call("c1"), second_tool.call("c2")))
    async with replica(database_url, agent, script) as first:
        run = await first.start()
        await second_tool.was_reached()
        await first.kill()
    second_tool.open.set()
    async with replica(database_url, agent, in_order(turn("done"))) as second:
        run = second.same(run)
        said = await run.finished()
        assert said[-1]["waiting"]["ticket_ids"] == ["unknown_c2"]
        done = [(one["id"], one["outcome"]) for one in of_type(said, "tool_call_done")]
        assert done == [("c1", "succeeded"), ("c2", "suspended")]
    assert len(first_tool.handed) == len(second_tool.handed) == 1


async def test_an_answered_call_keeps_its_answer_when_its_worker_dies(database_url: str) -> None:
    probe = Probe(effect="idempotent", asks=1)
    agent = an_agent(probe.tool)
    async with replica(database_url, agent, in_order(turn(probe.call("c1")))) as first:
        run = await first.start()
        await run.finished()
        probe.held = True
        probe.reached.clear()
        await run.decide("c1", "approve", result="yes")
        await probe.was_reached()
        assert await run.calls() == {"c1": "running"}
        await first.kill()
    probe.open.set()
    async with replica(database_url, agent, in_order(turn("done"))) as second:
        said = await second.same(run).finished(2)
        assert said[-1]["termination"] == {"type": "natural_end"}
        assert len(of_type(said, "run_start")) == 2
    assert [handed.resume_input for handed in probe.handed] == [None, "yes", "yes"]
    assert len({handed.idempotency_key for handed in probe.handed}) == 1


async def test_an_approved_call_is_asked_about_when_its_worker_dies(database_url: str) -> None:
    probe = Probe(held=True)
    agent = an_agent(probe.tool, approval=["probe"])
    script = in_order(turn(probe.call("c1"), probe.call("c2")))
    async with replica(database_url, agent, script) as first:
        run = await first.start()
        await run.finished()
        await run.decide("perm_c1", "approve")
        await probe.was_reached()
        await first.kill()
    async with replica(database_url, agent, in_order(turn("done"))) as second:
        run = second.same(run)
        said = await run.finished(2)
        assert said[-1]["waiting"]["ticket_ids"] == ["unknown_c1", "perm_c2"]
        await run.decide("unknown_c1", "respond", result="it had run")
        said = await run.finished(3)
        assert said[-1]["waiting"]["ticket_ids"] == ["perm_c2"]
        await run.decide("perm_c2", "reject")
        said = await run.finished(4)
        assert said[-1]["termination"] == {"type": "natural_end"}
    assert len(probe.handed) == 1


async def test_a_run_that_nobody_had_begun_is_found(database_url: str) -> None:
    """Claimed by its start, and its process dies before the first word."""
    gate = Gate()
    async with replica(database_url, an_agent(), in_order(turn(gate))) as first:
        run = await first.start()
        await first.kill()
    async with replica(database_url, an_agent(), in_order(turn("Hello"))) as second:
        said = await second.same(run).finished()
        assert len(of_type(said, "run_start")) == 1
        assert said[-1]["result"]["response"] == "Hello"


async def test_a_run_that_takes_every_worker_along_is_given_up(database_url: str) -> None:
    said: list[dict[str, object]] = []
    run: Run | None = None
    for number in range(6):
        gate = Gate()
        async with replica(database_url, an_agent(), in_order(turn("Hel", gate))) as house:
            run = await house.start() if run is None else house.same(run)
            await reached(gate)
            await run.until("text_delta", number + 1)
            await house.kill()
    assert run is not None
    script = in_order(turn("never asked"))
    async with replica(database_url, an_agent(), script) as house:
        run = house.same(run)
        said = await run.finished()
        record = await run.now()
        assert script.requests == []
        assert isinstance(record.state, Done)
        assert isinstance(record.state.termination, Failed)
        assert record.state.termination.code == "worker_lost"
        assert said[-1]["termination"] == {
            "type": "error",
            "code": "worker_lost",
            "detail": "6 workers were lost over this run",
        }
        following = await house.start(thread_id=run.thread_id)
        assert (await following.finished())[-1]["result"]["response"] == "never asked"


async def test_a_call_that_takes_every_worker_along_is_given_up(database_url: str) -> None:
    """It may be run again, and it is: that it was handed out once more is no progress."""
    probe = Probe(effect="read", held=True)
    agent = an_agent(probe.tool)
    run: Run | None = None
    for losses in range(6):
        probe.reached.clear()
        async with replica(database_url, agent, in_order(turn(probe.call("c1")))) as house:
            run = await house.start() if run is None else house.same(run)
            await probe.was_reached()
            assert (await run.now()).losses == losses
            await house.kill()
    assert run is not None
    async with replica(database_url, agent, in_order(turn("never asked"))) as house:
        run = house.same(run)
        said = await run.finished()
        assert said[-1]["termination"]["code"] == "worker_lost"
        # The thread goes on: the call has an answer that says so.
        assert texts_of(await run.log())[-1] == ("tool", INTERRUPTED)
        for wanted in (
            RunFilter(termination_code="worker_lost"),
            RunFilter(outcome=Outcome.FAILED),
        ):
            dead = await list_runs(house.ctx, ANN, wanted, before=None, limit=10)
            assert [one.run.id for one in dead] == [run.id]
        assert not await list_runs(house.ctx, ANN, NOBODY, before=None, limit=10)
        [why] = (await explain(house.ctx, ANN, run.id)).reasons
        assert "worker_lost: 6 workers were lost" in why.text
        assert f"/v1/runs/{run.id}/retry" in why.text
        following = await house.start(thread_id=run.thread_id)
        assert (await following.finished())[-1]["result"]["response"] == "never asked"
    assert len(probe.handed) == 6


async def test_runs_that_have_cost_several_workers_do_not_share_one(database_url: str) -> None:
    """Whichever of them kills takes no unlucky one along again; who has cost nobody isn't kept waiting."""
    probes = [Probe(name=name, effect="read", held=True) for name in ("one", "other")]
    agent = an_agent(*(probe.tool for probe in probes))
    script = in_order(*(turn(probe.call("c1")) for probe in probes))
    suspects = []
    async with replica(database_url, agent, script) as first:
        for probe in probes:
            suspects.append(await first.start())
            await probe.was_reached()
            probe.reached.clear()
        await first.database.pool.execute("UPDATE runs SET losses = 2")
        await first.kill()
    script = in_order(turn("innocent"), turn("done"), turn("done"))
    async with replica(database_url, agent, script) as second:

        async def at_work() -> list[Probe]:
            return [probe for probe in probes if probe.reached.is_set()]

        await eventually(at_work)
        innocent = await second.start()
        assert (await innocent.finished())[-1]["result"]["response"] == "innocent"
        [alone] = await at_work()
        [left] = [probe for probe in probes if probe is not alone]
        alone.open.set()
        await left.was_reached()
        left.open.set()
        for run in suspects:
            said = await second.same(run).finished()
            assert said[-1]["termination"] == {"type": "natural_end"}


async def test_progress_forgives_losses(database_url: str) -> None:
    probes = [Probe(name=f"probe{number}", effect="read", held=True) for number in range(8)]
    agent = an_agent(*(probe.tool for probe in probes))
    script = in_order(turn(*(probe.call(f"c{n}") for n, probe in enumerate(probes))))
    run: Run | None = None
    for probe in probes:
        async with replica(database_url, agent, script) as house:
            run = await house.start() if run is None else house.same(run)
            await probe.was_reached()
            assert (await run.now()).losses == 0
            await house.kill()
        probe.open.set()
    assert run is not None
    async with replica(database_url, agent, in_order(turn("done"))) as house:
        said = await house.same(run).finished()
        assert said[-1]["termination"] == {"type": "natural_end"}


async def test_a_worker_that_was_thought_dead_writes_nothing_more(database_url: str) -> None:
    gate = Gate()
    script = in_order(turn("Hel", gate, "lo, says the loser"))
    async with replica(database_url, an_agent(), script) as first:
        run = await first.start()
        await run.until("text_delta")
        await reached(gate)
        async with replica(database_url, an_agent(), in_order(turn("Hello"))) as second:
            # Its heart stops long enough to be missed; it knows nothing of that.
            await first.take_nothing_new()
            await first.liveness.stop()
            said = await second.same(run).finished()
            assert said[-1]["result"]["response"] == "Hello"
            gate.open.set()
            await asyncio.wait_for(first.worker.stop(grace=15), 20)
            assert await second.same(run).finished() == said
            record = await second.same(run).now()
            assert isinstance(record.state, Done)
            assert record.state.termination == NaturalEnd()
            assert texts_of(await second.same(run).log())[1:] == [("assistant", "Hello")]


# --- hand-over ------------------------------------------------------------------------------------


async def test_a_worker_that_stops_hands_over_between_two_calls(database_url: str) -> None:
    probe = Probe(held=True)
    agent = an_agent(probe.tool)
    script = in_order(turn(probe.call("c1"), probe.call("c2")), turn("not here"))
    async with replica(database_url, agent, script) as first:
        run = await first.start()
        await probe.was_reached()
        async with asyncio.TaskGroup() as group:
            stopping = group.create_task(first.stop())
            await first.worker._stopping.wait()
            assert not stopping.done()
            probe.open.set()
    assert len(probe.handed) == 1
    async with replica(database_url, agent, in_order(turn("done"))) as second:
        run = second.same(run)
        said = await run.finished()
        record = await run.now()
    assert types_of(said).count("run_start") == types_of(said).count("run_finish") == 1
    assert "stream_reset" not in types_of(said)
    assert [handed.call_id for handed in probe.handed] == ["c1", "c2"]
    assert (record.attempt, record.losses) == (2, 0)
    assert len(script.requests) == 1


async def test_a_worker_that_cannot_wait_hands_over_in_the_middle_of_a_message(
    database_url: str,
) -> None:
    gate = Gate()
    async with replica(database_url, an_agent(), in_order(turn("Hel", gate, "lo"))) as first:
        run = await first.start()
        await reached(gate)
        await run.until("text_delta")
        await first.worker.stop(grace=0)
        assert (await run.now()).status is RunStatus.RUNNING
    async with replica(database_url, an_agent(), in_order(turn("Hello"))) as second:
        said = await second.same(run).finished()
        check_run(said)
        assert types_of(said).count("stream_reset") == 1
        assert said[-1]["result"]["response"] == "Hello"


async def test_a_stopping_worker_sees_out_a_claim_that_is_under_way(database_url: str) -> None:
    async with replica(database_url, an_agent(), in_order(turn("not here"))) as first:
        assert first.worker.reserve()
        async with asyncio.TaskGroup() as group:
            stopping = group.create_task(first.worker.stop(grace=15))
            await first.worker._stopping.wait()
            run = await first.start(here=False)
            key = RunKey(run.record.tenant, run.thread_id, run.id, 0)
            assert not stopping.done()
            assert await first.worker.claim_and_launch(key, None)
        assert (await run.now()).status is RunStatus.RUNNING
    async with replica(database_url, an_agent(), in_order(turn("done"))) as second:
        said = await second.same(run).finished()
        assert said[-1]["result"]["response"] == "done"
