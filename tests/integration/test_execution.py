"""A run without interference: its requests, events, call states and checkpoints, in order."""

import asyncio

import pytest

from app.domain.events.tool_call_events import ToolCallStart
from app.domain.ids import CallId
from app.domain.inference.failures import FailureKind, failed
from app.domain.runs.runs import Done, RunStatus
from app.domain.runs.terminations import Failed, NaturalEnd, Stopped
from app.domain.threads.messages import Visibility, logged_message_to_json
from app.domain.tools.tool_calls import INTERRUPTED
from app.llm.scripted.model import Call, Fail, Gate, ScriptedText, in_order, turn
from app.queries.snapshots import read_run_snapshot
from tests.support.probes import Probe
from tests.support.replicas import ANN, an_agent, of_type, open_replica, texts_of, types_of

pytestmark = pytest.mark.anyio

STEP_WITH_CALL = [
    "step_start",
    "tool_call_start",
    "tool_call_delta",
    "tool_call_ready",
    "inference_complete",
    "message_done",
    "tool_call_done",
    "state_snapshot",
    "step_end",
]
LAST_STEP = ["step_start", "text_delta", "inference_complete", "message_done"]
LAST_STEP += ["state_snapshot", "step_end"]


@pytest.mark.parametrize("here", [True, False])
async def test_a_run_emits_the_same_events_started_directly_or_delivered(
    database_url: str, here: bool
) -> None:
    probe = Probe(effect="read")
    script = in_order(turn(probe.call("c1")), turn(ScriptedText(("All done",))))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start("please", here=here)
        emitted = await run.finished()
        record = await run.now()
        log = await run.log()
        assert await run.calls() == {}
    assert types_of(emitted) == [
        "run_created",
        # A queued run's input enters the log with its claim.
        *([] if here else ["input_delivered"]),
        "run_start",
        *STEP_WITH_CALL,
        *LAST_STEP,
        "state_snapshot",
        "run_finish",
    ]
    assert emitted[-1]["result"] == {"response": "All done"}
    assert isinstance(record.state, Done)
    assert record.state.termination == NaturalEnd()
    assert record.state.final_output == "All done"
    assert (record.steps, record.attempt, record.losses) == (2, 1, 0)
    assert record.input is not None
    assert record.input.trigger_message_ids == (log[0].message.id,)
    assert record.output.message_ids == tuple(entry.message.id for entry in log[1:])
    assert texts_of(log) == [
        ("user", "please"),
        ("assistant", ""),
        ("tool", "probe did it"),
        ("assistant", "All done"),
    ]
    assert [entry.message.step_index for entry in log] == [None, 0, 0, 1]
    assert script.requests[1].messages == [entry.message for entry in log[:3]]


async def test_a_call_is_saved_as_running_before_its_tool_is_called(database_url: str) -> None:
    probe = Probe(held=True)
    script = in_order(turn("Let me see.", probe.call("c1"), probe.call("c2")), turn("done"))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        await probe.was_reached()
        assert await run.calls() == {"c1": "running", "c2": "pending"}
        snapshot = await read_run_snapshot(replica.ctx, ANN, run.id)
        assert snapshot.messages[-1].message.text == "Let me see."
        assert snapshot.open_parts.text == "", "the text is in the log and in the open answer"
        assert texts_of(await run.log())[1:] == [("assistant", "Let me see.")]
        emitted = await run.until("message_done")
        assert types_of(emitted).count("tool_call_ready") == 2
        assert emitted[-1]["message"] == logged_message_to_json((await run.log())[1])
        probe.open.set()
        await run.finished()
    assert [handed.call_id for handed in probe.handed] == ["c1", "c2"]
    assert len({handed.idempotency_key for handed in probe.handed}) == 2


async def test_a_result_is_saved_before_the_next_tool_runs(database_url: str) -> None:
    first, second = Probe(name="first"), Probe(name="second", held=True)
    script = in_order(turn(first.call("c1"), second.call("c2")), turn("done"))
    async with open_replica(database_url, an_agent(first.tool, second.tool), script) as replica:
        run = await replica.start()
        await second.was_reached()
        assert await run.calls() == {"c1": "succeeded", "c2": "running"}
        assert texts_of(await run.log())[2:] == [("tool", "first did it")]
        second.open.set()
        await run.finished()
        assert await run.calls() == {}


async def test_a_tool_that_suspends_stops_the_calls_after_it(database_url: str) -> None:
    before, asking, behind = (
        Probe(name="before"),
        Probe(name="asking", asks=1),
        Probe(name="behind"),
    )
    script = in_order(turn(before.call("c1"), asking.call("c2"), behind.call("c3")), turn("done"))
    tools = (before.tool, asking.tool, behind.tool)
    async with open_replica(database_url, an_agent(*tools), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        outcomes = {
            finished_calls["tool_call_id"]: finished_calls["result"].get("outcome")
            for finished_calls in of_type(emitted, "tool_call_done")
        }
        assert outcomes == {"c1": "succeeded", "c2": None, "c3": "failed"}
        assert texts_of(await run.log())[2:] == [
            ("tool", "before did it"),
            ("tool", "Question 1?"),
            ("tool", INTERRUPTED),
        ]
        assert behind.handed == []


async def test_a_failed_tool_does_not_end_the_run(database_url: str) -> None:
    script = in_order(
        turn(Call(tool="nowhere", id=CallId("c1")), Call(tool="probe", id=CallId("c2"))),
        turn("done"),
    )
    probe = Probe()
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        await run.finished()
        assert texts_of(await run.log())[2:4] == [
            ("tool", "tool 'nowhere' not found"),
            ("tool", "probe did it"),
        ]


async def test_arguments_that_violate_the_schema_are_reported_to_the_model(
    database_url: str,
) -> None:
    probe = Probe()
    script = in_order(
        turn(Call(tool="probe", arguments={"text": 1}, id=CallId("c1"))), turn("I see")
    )
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        assert (await run.log())[2].message.text.startswith("Invalid arguments: ")
        assert await run.tickets() == []
    assert probe.handed == []


@pytest.mark.parametrize(
    "arguments", ['{"text": ', '{"text": NaN}', '{"text": 1e999}', '"\\ud800', "[" * 5000]
)
async def test_a_call_with_arguments_that_are_not_json_is_requested_again(
    database_url: str, arguments: str
) -> None:
    probe = Probe()
    script = in_order(
        turn(Call(tool="probe", arguments=arguments, id=CallId("c1"))),
        turn(probe.call("c2")),
        turn("done"),
    )
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        log = await run.log()
    assert [cancelled["tool_call_id"] for cancelled in of_type(emitted, "tool_call_cancel")] == [
        "c1"
    ]
    assert [ready["tool_call_id"] for ready in of_type(emitted, "tool_call_ready")] == ["c2"]
    note = log[2].message
    assert note.visibility is Visibility.INTERNAL
    assert "probe" in note.text
    assert note in script.requests[1].messages
    assert [handed.call_id for handed in probe.handed] == ["c2"]


async def test_a_valid_call_beside_a_malformed_one_is_run(database_url: str) -> None:
    probe = Probe()
    broken = Call(tool="probe", arguments="{", id=CallId("c1"))
    script = in_order(turn(broken, probe.call("c2")), turn("done"))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        await run.finished()
        roles = [role for role, _ in texts_of(await run.log())]
    assert roles == ["user", "assistant", "tool", "user", "assistant"]


async def test_characters_that_postgres_cannot_store_are_replaced(database_url: str) -> None:
    probe = Probe()
    odd = Call(tool="pro\0be", arguments={"a\0": "b\ud800"}, id=CallId("c\0"))
    script = in_order(turn("so\0", odd), turn("bad\0 \ud800 end"))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start("go\0")
        emitted = await run.finished()
        record = await run.now()
        log = await run.log()
    assert isinstance(record.state, Done)
    assert record.state.final_output == emitted[-1]["result"]["response"] == "bad\ufffd \ufffd end"
    [call] = log[1].message.tool_calls
    assert (call.id, call.name, call.arguments) == (
        "c\ufffd",
        "pro\ufffdbe",
        {"a\ufffd": "b\ufffd"},
    )
    assert log[2].message.tool_call_id == call.id
    assert of_type(emitted, ToolCallStart.event_type)[0]["tool_call_id"] == call.id


@pytest.mark.parametrize("max_rounds", [1, 2])
async def test_rounds_are_counted_before_the_inference(database_url: str, max_rounds: int) -> None:
    probe = Probe(effect="read")
    script = in_order(*(turn("again", probe.call(f"c{n}")) for n in range(5)))
    agent = an_agent(probe.tool, max_rounds=max_rounds)
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        record = await run.now()
    assert len(script.requests) == len(probe.handed) == record.steps == max_rounds
    assert isinstance(record.state, Done)
    assert isinstance(record.state.termination, Stopped)
    assert record.state.termination.code == "max_rounds"
    assert emitted[-1]["termination"]["code"] == "max_rounds"
    assert emitted[-1]["result"]["response"] == "again"


async def test_an_answer_in_the_last_round_ends_the_run_naturally(database_url: str) -> None:
    async with open_replica(database_url, an_agent(max_rounds=1), in_order(turn("hi"))) as replica:
        emitted = await (await replica.start()).finished()
    assert emitted[-1]["termination"] == {"type": "natural_end"}


async def test_a_failed_model_ends_the_run_with_its_error(database_url: str) -> None:
    error = failed(FailureKind.CONTENT_FILTERED, "not this")
    script = in_order(turn("so far", Fail(error)), turn("next"))
    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        record = await run.now()
        assert isinstance(record.state, Done)
        assert isinstance(record.state.termination, Failed)
        assert record.state.termination.code == error.kind
        assert emitted[-1]["termination"]["type"] == "error"
        following = await replica.start(thread_id=run.thread_id)
        assert (await following.finished())[-1]["termination"] == {"type": "natural_end"}


async def test_tokens_are_summed_over_the_steps(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn("one two", probe.call("c1")), turn("three"))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start("hello there")
        emitted = await run.finished()
        record = await run.now()
    used = [complete["usage"] for complete in of_type(emitted, "inference_complete")]
    assert record.usage.input_tokens == sum(usage["prompt_tokens"] for usage in used) > 0
    assert record.usage.output_tokens == sum(usage["completion_tokens"] for usage in used) > 0


async def test_no_event_is_published_before_it_is_durable(database_url: str) -> None:
    gate = Gate()
    script = in_order(turn("Hel", gate, "lo"))
    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start()
        seen = await run.until("text_delta")
        stored = await replica.database.pool.fetchval(
            "SELECT max(seq) FROM events WHERE run_id = $1", run.id
        )
        assert stored >= seen[-1]["seq"]
        assert (await run.now()).status is RunStatus.RUNNING
        gate.open.set()
        await run.finished()


async def test_runs_of_a_thread_execute_in_the_order_of_their_creation(database_url: str) -> None:
    gate = Gate()
    script = in_order(turn(gate, "one"), turn("two"), turn("three"))
    async with open_replica(database_url, an_agent(), script) as replica:
        first = await replica.start("a")
        await asyncio.wait_for(gate.reached.wait(), 15)
        second = await replica.start("b", thread_id=first.thread_id)
        third = await replica.start("c", thread_id=first.thread_id)
        assert (await second.until("run_created"))[0]["position"] == 1
        assert (await third.until("run_created"))[0]["position"] == 2
        assert texts_of(await first.log()) == [("user", "a")]
        gate.open.set()
        await third.finished()
        assert [text for _, text in texts_of(await first.log())] == [
            "a",
            "one",
            "b",
            "two",
            "c",
            "three",
        ]
        record = await second.now()
        assert record.input is not None
        assert record.input.range is not None
        assert (record.input.range.from_seq, record.input.range.to_seq) == (3, 3)
