"""Takeover: another worker continues from the log of a dead one and repeats no unsafe call."""

import asyncio

import pytest

from app.domain.runs.runs import Done, RunFilter, RunStatus
from app.domain.runs.terminations import Failed, NaturalEnd, Outcome
from app.domain.slices import PageRequest
from app.domain.threads.messages import Role
from app.domain.tickets.tickets import TicketKind
from app.domain.tools.tool_calls import INTERRUPTED
from app.llm.scripted.model import Gate, in_order, turn
from app.queries.explain import explain
from app.queries.records import list_runs
from app.storage.runs.runs import RunKey
from tests.support.conditions import eventually
from tests.support.event_order import check_run
from tests.support.finishes import asked_by
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

OF_NO_AGENT = RunFilter(outcome=Outcome.SUCCEEDED, termination_code="worker_lost")


async def reached(gate: Gate) -> None:
    await asyncio.wait_for(gate.reached.wait(), 15)


async def test_a_takeover_before_the_inference_repeats_the_step(database_url: str) -> None:
    gate = Gate()
    async with open_replica(database_url, an_agent(), in_order(turn(gate, "lost"))) as first:
        run = await first.start()
        await reached(gate)
        await run.until("step_start")
        await first.kill()
    async with open_replica(database_url, an_agent(), in_order(turn("Hello"))) as second:
        run = second.same(run)
        emitted = await run.finished()
        record = await run.now()
        assert texts_of(await run.log()) == [("user", "go"), ("assistant", "Hello")]
    assert types_of(emitted)[:5] == [
        "run_created",
        "run_start",
        "step_start",
        "stream_reset",
        "text_delta",
    ]
    assert emitted[3]["reason"] == "takeover"
    assert {event.get("step") for event in emitted[2:6]} == {1}
    assert len(of_type(emitted, "run_start")) == len(of_type(emitted, "step_start")) == 1
    assert (record.attempt, record.losses, record.steps) == (2, 0, 1)


async def test_a_takeover_during_a_message_repeats_the_message(database_url: str) -> None:
    gate = Gate()
    probe = Probe()
    script = in_order(turn(probe.call("c1")), turn("Hel", gate, "lo"))
    async with open_replica(database_url, an_agent(probe.tool), script) as first:
        run = await first.start()
        await reached(gate)
        await run.until("text_delta")
        await first.kill()
    script = in_order(turn("Hello"))
    async with open_replica(database_url, an_agent(probe.tool), script) as second:
        run = second.same(run)
        emitted = await run.finished()
        assert texts_of(await run.log())[-1] == ("assistant", "Hello")
    reset = types_of(emitted).index("stream_reset")
    assert emitted[reset]["step"] == 2
    assert "".join(one["delta"] for one in of_type(emitted[reset:], "text_delta")) == "Hello"
    assert [one["step"] for one in of_type(emitted, "step_end")] == [1, 2]
    assert len(probe.handed) == 1
    assert [message.role for message in script.requests[0].messages] == [
        Role.USER,
        Role.ASSISTANT,
        Role.TOOL,
    ]


@pytest.mark.parametrize("effect", ["read", "idempotent"])
async def test_a_repeatable_call_is_repeated_under_its_key(database_url: str, effect: str) -> None:
    before, held = Probe(name="before"), Probe(name="held", held=True)
    held.effect = "read" if effect == "read" else "idempotent"
    behind = Probe(name="behind")
    agent = an_agent(before.tool, held.tool, behind.tool)
    script = in_order(turn(before.call("c1"), held.call("c2"), behind.call("c3")))
    async with open_replica(database_url, agent, script) as first:
        run = await first.start()
        await held.was_reached()
        await first.kill()
    held.open.set()
    async with open_replica(database_url, agent, in_order(turn("done"))) as second:
        run = second.same(run)
        emitted = await run.finished()
        assert texts_of(await run.log())[2:] == [
            ("tool", "before did it"),
            ("tool", "held did it"),
            ("tool", "behind did it"),
            ("assistant", "done"),
        ]
    assert "stream_reset" not in types_of(emitted)
    assert [len(probe.handed) for probe in (before, held, behind)] == [1, 2, 1]
    assert held.handed[0] == held.handed[1]
    assert [done["tool_call_id"] for done in of_type(emitted, "tool_call_done")] == [
        "c1",
        "c2",
        "c3",
    ]
    assert len(of_type(emitted, "run_start")) == 1


async def killed_during_an_unsafe_call(url: str, probe: Probe) -> Run:
    """A run whose worker was killed during the call of an unsafe tool."""
    agent, behind = an_agent(probe.tool), "c2"
    script = in_order(turn(probe.call("c1", "this"), probe.call(behind, "that")))
    async with open_replica(url, agent, script) as first:
        run = await first.start()
        await probe.was_reached()
        await first.kill()
    probe.open.set()
    return run


async def suspended_by(replica: Replica, run: Run) -> Run:
    """The run, once another replica has taken it over and opened a ticket."""
    taken_over = replica.same(run)
    emitted = await taken_over.finished()
    assert asked_by(emitted[-1]) == ["unknown_c1"]
    return taken_over


@pytest.mark.parametrize(
    "action, more, handed, tool_text",
    [
        ("respond", {"result": "it had run"}, ["this", "that"], "it had run"),
        ("approve", {}, ["this", "that", "this"], "probe did this"),
        ("cancel", {"reason": "leave it"}, ["this", "that"], "leave it"),
    ],
)
async def test_an_unsafe_call_opens_a_ticket_instead_of_being_repeated(
    database_url: str, action: str, more: dict[str, object], handed: list[str], tool_text: str
) -> None:
    probe = Probe(held=True)
    run = await killed_during_an_unsafe_call(database_url, probe)
    script = in_order(turn("done"))
    async with open_replica(database_url, an_agent(probe.tool), script) as second:
        run = await suspended_by(second, run)
        [ticket] = await run.tickets()
        assert ticket.kind is TicketKind.OUTCOME_UNKNOWN
        assert ticket.evidence is not None
        assert ticket.evidence["idempotency_key"] == probe.handed[0].idempotency_key
        assert ticket.evidence["started_at"] < ticket.created_at.isoformat()
        assert ticket.evidence["arguments"] == ticket.arguments == {"text": "this"}
        # The call after it is executed, because its outcome isn't in doubt.
        assert [one.text for one in probe.handed] == ["this", "that"]
        assert len(script.requests) == 0
        await run.decide("unknown_c1", action, **more)
        emitted = await run.finished(2)
        assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert [one.text for one in probe.handed] == handed
    shown = {m.tool_call_id: m.text for m in script.requests[0].messages if m.tool_call_id}
    assert shown == {"c1": tool_text, "c2": "probe did that"}
    assert probe.handed[-1].idempotency_key in {one.idempotency_key for one in probe.handed[:2]}


async def test_a_call_with_a_saved_result_is_never_repeated(database_url: str) -> None:
    first_tool, second_tool = Probe(name="first"), Probe(name="second", held=True)
    agent = an_agent(first_tool.tool, second_tool.tool)
    script = in_order(turn(first_tool.call("c1"), second_tool.call("c2")))
    async with open_replica(database_url, agent, script) as first:
        run = await first.start()
        await second_tool.was_reached()
        await first.kill()
    second_tool.open.set()
    async with open_replica(database_url, agent, in_order(turn("done"))) as second:
        run = second.same(run)
        emitted = await run.finished()
        assert asked_by(emitted[-1]) == ["unknown_c2"]
        done = [
            (one["tool_call_id"], one["result"].get("outcome"))
            for one in of_type(emitted, "tool_call_done")
        ]
        assert done == [("c1", "succeeded"), ("c2", None)]
    assert len(first_tool.handed) == len(second_tool.handed) == 1


async def test_an_answered_call_keeps_its_answer_when_its_worker_dies(database_url: str) -> None:
    probe = Probe(effect="idempotent", asks=1)
    agent = an_agent(probe.tool)
    async with open_replica(database_url, agent, in_order(turn(probe.call("c1")))) as first:
        run = await first.start()
        await run.finished()
        probe.held = True
        probe.reached.clear()
        await run.decide("c1", "approve", result="yes")
        await probe.was_reached()
        assert await run.calls() == {"c1": "running"}
        await first.kill()
    probe.open.set()
    async with open_replica(database_url, agent, in_order(turn("done"))) as second:
        emitted = await second.same(run).finished(2)
        assert emitted[-1]["termination"] == {"type": "natural_end"}
        assert len(of_type(emitted, "run_start")) == 2
    assert [handed.resume_input for handed in probe.handed] == [None, "yes", "yes"]
    assert len({handed.idempotency_key for handed in probe.handed}) == 1


async def test_an_approved_unsafe_call_opens_a_ticket_when_its_worker_dies(
    database_url: str,
) -> None:
    probe = Probe(held=True)
    agent = an_agent(probe.tool, approval=["probe"])
    script = in_order(turn(probe.call("c1"), probe.call("c2")))
    async with open_replica(database_url, agent, script) as first:
        run = await first.start()
        await run.finished()
        await run.decide("perm_c1", "approve")
        await probe.was_reached()
        await first.kill()
    async with open_replica(database_url, agent, in_order(turn("done"))) as second:
        run = second.same(run)
        emitted = await run.finished(2)
        assert asked_by(emitted[-1]) == ["unknown_c1", "perm_c2"]
        await run.decide("unknown_c1", "respond", result="it had run")
        emitted = await run.finished(3)
        assert asked_by(emitted[-1]) == ["perm_c2"]
        await run.decide("perm_c2", "reject")
        emitted = await run.finished(4)
        assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert len(probe.handed) == 1


async def test_a_claimed_run_that_did_not_begin_is_taken_over(database_url: str) -> None:
    """The run is claimed by its start, and its process dies before the first event."""
    gate = Gate()
    async with open_replica(database_url, an_agent(), in_order(turn(gate))) as first:
        run = await first.start()
        await first.kill()
    async with open_replica(database_url, an_agent(), in_order(turn("Hello"))) as second:
        emitted = await second.same(run).finished()
        assert len(of_type(emitted, "run_start")) == 1
        assert emitted[-1]["result"]["response"] == "Hello"


async def test_a_run_that_crashes_every_worker_is_given_up(database_url: str) -> None:
    emitted: list[dict[str, object]] = []
    run: Run | None = None
    for number in range(6):
        gate = Gate()
        async with open_replica(database_url, an_agent(), in_order(turn("Hel", gate))) as replica:
            run = await replica.start() if run is None else replica.same(run)
            await reached(gate)
            await run.until("text_delta", number + 1)
            await replica.kill()
    assert run is not None
    script = in_order(turn("never asked"))
    async with open_replica(database_url, an_agent(), script) as replica:
        run = replica.same(run)
        emitted = await run.finished()
        record = await run.now()
        assert script.requests == []
        assert isinstance(record.state, Done)
        assert isinstance(record.state.termination, Failed)
        assert record.state.termination.code == "worker_lost"
        assert emitted[-1]["termination"] == {
            "type": "error",
            "code": "worker_lost",
            "detail": "6 workers were lost over this run",
        }
        following = await replica.start(thread_id=run.thread_id)
        assert (await following.finished())[-1]["result"]["response"] == "never asked"


async def test_a_call_that_crashes_every_worker_is_given_up(database_url: str) -> None:
    """The call is repeatable and is repeated. Executing it once more doesn't count as progress."""
    probe = Probe(effect="read", held=True)
    agent = an_agent(probe.tool)
    run: Run | None = None
    for losses in range(6):
        probe.reached.clear()
        async with open_replica(database_url, agent, in_order(turn(probe.call("c1")))) as replica:
            run = await replica.start() if run is None else replica.same(run)
            await probe.was_reached()
            assert (await run.now()).losses == losses
            await replica.kill()
    assert run is not None
    async with open_replica(database_url, agent, in_order(turn("never asked"))) as replica:
        run = replica.same(run)
        emitted = await run.finished()
        assert emitted[-1]["termination"]["code"] == "worker_lost"
        # The call has a result that reports the interruption, so the thread can continue.
        assert texts_of(await run.log())[-1] == ("tool", INTERRUPTED)
        for wanted in (
            RunFilter(termination_code="worker_lost"),
            RunFilter(outcome=Outcome.FAILED),
        ):
            matching = await list_runs(replica.ctx, ANN, wanted, PageRequest())
            assert [one.run.id for one in matching] == [run.id]
        assert not await list_runs(replica.ctx, ANN, OF_NO_AGENT, PageRequest())
        [why] = (await explain(replica.ctx, ANN, run.id)).reasons
        assert "worker_lost: 6 workers were lost" in why.text
        assert f"/v1/runs/{run.id}/retry" in why.text
        following = await replica.start(thread_id=run.thread_id)
        assert (await following.finished())[-1]["result"]["response"] == "never asked"
    assert len(probe.handed) == 6


async def test_runs_that_lost_several_workers_are_not_executed_together(database_url: str) -> None:
    """A run that crashes its worker can't affect the other suspect, and runs without losses don't wait."""
    probes = [Probe(name=name, effect="read", held=True) for name in ("one", "other")]
    agent = an_agent(*(probe.tool for probe in probes))
    script = in_order(*(turn(probe.call("c1")) for probe in probes))
    suspects = []
    async with open_replica(database_url, agent, script) as first:
        for probe in probes:
            suspects.append(await first.start())
            await probe.was_reached()
            probe.reached.clear()
        await first.database.pool.execute("UPDATE runs SET losses = 2")
        await first.kill()
    script = in_order(turn("innocent"), turn("done"), turn("done"))
    async with open_replica(database_url, agent, script) as second:

        async def at_work() -> list[Probe]:
            return [probe for probe in probes if probe.reached.is_set()]

        await eventually(at_work)
        innocent = await second.start()
        assert (await innocent.finished())[-1]["result"]["response"] == "innocent"
        [first_executing] = await at_work()
        [second_executing] = [probe for probe in probes if probe is not first_executing]
        first_executing.open.set()
        await second_executing.was_reached()
        second_executing.open.set()
        for run in suspects:
            emitted = await second.same(run).finished()
            assert emitted[-1]["termination"] == {"type": "natural_end"}


async def test_progress_resets_the_losses_of_a_run(database_url: str) -> None:
    probes = [Probe(name=f"probe{number}", effect="read", held=True) for number in range(8)]
    agent = an_agent(*(probe.tool for probe in probes))
    script = in_order(turn(*(probe.call(f"c{n}") for n, probe in enumerate(probes))))
    run: Run | None = None
    for probe in probes:
        async with open_replica(database_url, agent, script) as replica:
            run = await replica.start() if run is None else replica.same(run)
            await probe.was_reached()
            assert (await run.now()).losses == 0
            await replica.kill()
        probe.open.set()
    assert run is not None
    async with open_replica(database_url, agent, in_order(turn("done"))) as replica:
        emitted = await replica.same(run).finished()
        assert emitted[-1]["termination"] == {"type": "natural_end"}


async def test_a_worker_that_lost_its_run_writes_nothing_more(database_url: str) -> None:
    gate = Gate()
    script = in_order(turn("Hel", gate, "lo, says the loser"))
    async with open_replica(database_url, an_agent(), script) as first:
        run = await first.start()
        await run.until("text_delta")
        await reached(gate)
        async with open_replica(database_url, an_agent(), in_order(turn("Hello"))) as second:
            # Its heartbeat is too old for the others, and it doesn't know.
            await first.take_nothing_new()
            await first.heartbeat.stop()
            emitted = await second.same(run).finished()
            assert emitted[-1]["result"]["response"] == "Hello"
            gate.open.set()
            await asyncio.wait_for(first.worker.stop(grace=15), 20)
            assert await second.same(run).finished() == emitted
            record = await second.same(run).now()
            assert isinstance(record.state, Done)
            assert record.state.termination == NaturalEnd()
            assert texts_of(await second.same(run).log())[1:] == [("assistant", "Hello")]


# --- hand-over ------------------------------------------------------------------------------------


async def test_a_worker_that_stops_hands_over_between_two_calls(database_url: str) -> None:
    probe = Probe(held=True)
    agent = an_agent(probe.tool)
    script = in_order(turn(probe.call("c1"), probe.call("c2")), turn("not here"))
    async with open_replica(database_url, agent, script) as first:
        run = await first.start()
        await probe.was_reached()
        async with asyncio.TaskGroup() as group:
            stopping = group.create_task(first.stop())
            await first.worker.slots.stopping.wait()
            assert not stopping.done()
            probe.open.set()
    assert len(probe.handed) == 1
    async with open_replica(database_url, agent, in_order(turn("done"))) as second:
        run = second.same(run)
        emitted = await run.finished()
        record = await run.now()
    assert types_of(emitted).count("run_start") == types_of(emitted).count("run_finish") == 1
    assert "stream_reset" not in types_of(emitted)
    assert [handed.call_id for handed in probe.handed] == ["c1", "c2"]
    assert (record.attempt, record.losses) == (2, 0)
    assert len(script.requests) == 1


async def test_a_worker_without_time_hands_over_in_the_middle_of_a_message(
    database_url: str,
) -> None:
    gate = Gate()
    async with open_replica(database_url, an_agent(), in_order(turn("Hel", gate, "lo"))) as first:
        run = await first.start()
        await reached(gate)
        await run.until("text_delta")
        await first.worker.stop(grace=0)
        assert (await run.now()).status is RunStatus.RUNNING
    async with open_replica(database_url, an_agent(), in_order(turn("Hello"))) as second:
        emitted = await second.same(run).finished()
        check_run(emitted)
        assert types_of(emitted).count("stream_reset") == 1
        assert emitted[-1]["result"]["response"] == "Hello"


async def test_a_stopping_worker_completes_a_claim_in_progress(database_url: str) -> None:
    async with open_replica(database_url, an_agent(), in_order(turn("not here"))) as first:
        assert first.worker.slots.reserve()
        async with asyncio.TaskGroup() as group:
            stopping = group.create_task(first.worker.stop(grace=15))
            await first.worker.slots.stopping.wait()
            run = await first.start(here=False)
            key = RunKey(run.record.tenant, run.thread_id, run.id, 0)
            assert not stopping.done()
            assert await first.worker.claim_and_launch(key, None)
        assert (await run.now()).status is RunStatus.RUNNING
    async with open_replica(database_url, an_agent(), in_order(turn("done"))) as second:
        emitted = await second.same(run).finished()
        assert emitted[-1]["result"]["response"] == "done"
