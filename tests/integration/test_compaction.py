"""Summaries made beside a run: used once they are ready, and never waited for."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from app.agents.catalog import Catalog
from app.domain.errors import InferenceFailed
from app.domain.runs.runs import Done, RunStatus
from app.domain.runs.terminations import Cancelled
from app.domain.slices import Order, PageRequest
from app.domain.threads.messages import (
    LoggedMessage,
    Message,
    MessageFilter,
    MessageRange,
    Role,
    Summary,
    Visibility,
)
from app.llm.scripted.model import Fail, Gate, Part, ScriptedTurn, turn
from app.queries.records import list_messages
from app.runtime.compaction.compaction import FAILURES, FIRST_PAUSE_MESSAGES
from app.runtime.ports.models import ModelRequest, StopReason, TokenUsage
from app.storage.threads import threads
from tests.support.conditions import eventually
from tests.support.probes import Probe
from tests.support.replicas import ANN, Replica, Run, an_agent, configured, open_replica

pytestmark = pytest.mark.anyio

WINDOW = {
    "max_context_tokens": 20_000,
    "max_output_tokens": 1000,
    "autocompact_threshold": 6500,
    "keep_recent_messages": 2,
}
LONG = "x" * 12_000
"""Three thousand tokens."""
NOW = "and now? " + "y" * 2400
"""What makes two long ones too many."""
SUMMARY = "They talked about x."
BROKEN = Fail(InferenceFailed("overloaded", "not now", retryable=True))


class Model:
    """Plays the agent's turns and the summariser's, each in order."""

    def __init__(self, turns: Sequence[ScriptedTurn], summaries: Sequence[ScriptedTurn]) -> None:
        self._turns, self._summaries = list(turns), list(summaries)
        self.asked: list[ModelRequest] = []
        self.asked_for_summary: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> ScriptedTurn:
        if request.system_prompt.startswith("You condense"):
            self.asked_for_summary.append(request)
            return self._summaries.pop(0)
        self.asked.append(request)
        return self._turns.pop(0)


def summary(*parts: Part | str, tokens: int = 0) -> ScriptedTurn:
    """A summary that cost `tokens` input and output tokens."""
    return ScriptedTurn(
        turn(*parts).parts, usage=TokenUsage(prompt_tokens=tokens, completion_tokens=tokens)
    )


def cheap(*parts: Part | str) -> ScriptedTurn:
    """An answer that costs one input and one output token."""
    return ScriptedTurn(turn(*parts).parts, usage=TokenUsage(prompt_tokens=1, completion_tokens=1))


def agent(*probes: Probe, **window: Any) -> Catalog:
    return configured(
        an_agent(*(probe.tool for probe in probes)), context_window={**WINDOW, **window}
    )


async def long_thread(replica: Replica) -> Run:
    """Two runs whose messages exceed the threshold for the next run."""
    first = await replica.start(LONG)
    await first.finished()
    second = await replica.start(LONG, thread_id=first.thread_id)
    await second.finished()
    return second


TALK = [turn("one"), turn("two")]


def summaries_in(log: Sequence[LoggedMessage]) -> list[Summary]:
    blocks = [block for entry in log for block in entry.message.content]
    return [block for block in blocks if isinstance(block, Summary)]


def shown(messages: Sequence[Message]) -> list[str]:
    """The beginning of each message, which identifies it."""
    return [message.text[:22] for message in messages]


async def until_summarised(replica: Replica) -> None:
    async def has_summary() -> bool:
        return not replica.worker.slots._side_tasks

    await eventually(has_summary)


async def until_free(replica: Replica) -> None:
    """Until no run executes."""

    async def is_free() -> bool:
        return not replica.worker.executing

    await eventually(is_free)


async def no_runs_nor_summaries(replica: Replica) -> None:
    """Until no run executes and no summary is in progress."""
    await until_free(replica)
    await until_summarised(replica)


async def memory_of(run: Run) -> Any:
    async with run.replica.database.reading() as connection:
        state = await threads.state(connection, run.record.tenant, run.thread_id)
    return state.get(FAILURES.name)


async def test_a_finished_summary_is_used_from_the_next_step_on(
    database_url: str,
) -> None:
    probe = Probe(held=True)
    model = Model([*TALK, turn(probe.call("c1")), turn("three")], [summary(SUMMARY)])
    async with open_replica(database_url, agent(probe), model) as replica:
        before = await long_thread(replica)
        ranges = (await before.now()).input, (await before.now()).output
        old = await before.log()
        run = await replica.start(NOW, thread_id=before.thread_id)
        await probe.was_reached()
        await until_summarised(replica)
        probe.open.set()
        await run.finished()
        log = await run.log()
        assert ((await before.now()).input, (await before.now()).output) == ranges
        page = await list_messages(
            replica.ctx,
            ANN,
            run.thread_id,
            MessageFilter(visibility=Visibility.ALL),
            PageRequest(order=Order.ASC),
        )
    assert log[:4] == old
    assert [entry.seq for entry in log] == [*range(1, 10)]
    assert summaries_in(log) == [Summary(SUMMARY, MessageRange(1, 3))]
    assert [entry.seq for entry in log if summaries_in([entry])] == [8]
    assert 8 not in [entry.seq for entry in page]
    assert shown(model.asked[2].messages) == [LONG[:22], "one", LONG[:22], "two", NOW[:22]]
    assert shown(model.asked[3].messages) == [
        "<conversation-summary>",
        "two",
        NOW[:22],
        "",
        "probe did it",
    ]


async def test_the_tokens_of_a_summary_count_for_the_run(database_url: str) -> None:
    probe = Probe(held=True)
    model = Model([*TALK, cheap(probe.call("c1")), cheap("three")], [summary(SUMMARY, tokens=1000)])
    async with open_replica(database_url, agent(probe), model) as replica:
        before = await long_thread(replica)
        run = await replica.start(NOW, thread_id=before.thread_id)
        await probe.was_reached()
        await until_summarised(replica)
        probe.open.set()
        await run.finished()
        usage = (await run.now()).usage
    assert (usage.input_tokens, usage.output_tokens) == (1002, 1002)


async def test_the_summariser_reads_the_messages_that_the_summary_replaces(
    database_url: str,
) -> None:
    model = Model([*TALK, turn("three")], [summary(SUMMARY)])
    async with open_replica(database_url, agent(), model) as replica:
        before = await long_thread(replica)
        await (await replica.start(NOW, thread_id=before.thread_id)).finished()
        await no_runs_nor_summaries(replica)
    [request] = model.asked_for_summary
    [message] = request.messages
    assert message.role is Role.USER
    assert message.text.count(LONG) == 2
    assert "assistant:\none" in message.text
    assert "two" not in message.text
    assert "and now?" not in message.text


async def test_a_run_never_waits_for_a_summary(database_url: str) -> None:
    """The late summary is stored in the thread for its next run, and its request in the ledger."""
    gate = Gate()
    model = Model([*TALK, turn("three"), turn("four")], [summary(gate, SUMMARY)])
    async with open_replica(database_url, agent(), model) as replica:
        before = await long_thread(replica)
        run = await replica.start(NOW, thread_id=before.thread_id)
        await run.finished()
        await until_free(replica)
        assert summaries_in(await run.log()) == []
        record = await run.now()
        gate.open.set()
        await no_runs_nor_summaries(replica)
        assert summaries_in(await run.log()) == [Summary(SUMMARY, MessageRange(1, 3))]
        assert await run.now() == record
        rows = await replica.database.pool.fetch(
            "SELECT kind, attempt FROM usage WHERE run_id = $1 ORDER BY number", record.id
        )
        assert [tuple(row) for row in rows] == [("inference", 1), ("summary", 1)]
        await (await replica.start("more", thread_id=run.thread_id)).finished()
        log = await run.log()
    assert [entry.seq for entry in log] == [*range(1, 10)]
    assert shown(model.asked[-1].messages) == [
        "<conversation-summary>",
        "two",
        NOW[:22],
        "three",
        "more",
    ]


async def test_a_late_summary_is_not_written_while_a_run_occupies_the_thread(
    database_url: str,
) -> None:
    late, busy = Gate(), Gate()
    model = Model(
        [*TALK, turn("three"), turn(busy, "four"), turn("five")],
        [summary(late, "too late"), summary(Gate(), "never"), summary("better")],
    )
    async with open_replica(database_url, agent(), model) as replica:
        before = await long_thread(replica)
        await (await replica.start(NOW, thread_id=before.thread_id)).finished()
        run = await replica.start(NOW, thread_id=before.thread_id)
        await asyncio.wait_for(busy.reached.wait(), 15)
        late.open.set()

        async def summary_is_done() -> bool:
            return len(replica.worker.slots._side_tasks) == 1

        await eventually(summary_is_done)
        run_id = run.id
        busy.open.set()
        await run.finished()
        assert summaries_in(await run.log()) == []
        assert (await run.now()).id == run_id


async def test_a_failed_summary_leaves_the_run_alone_and_is_not_retried_in_each_step(
    database_url: str,
) -> None:
    probe = Probe()
    turns = [turn(probe.call(f"c{n}")) for n in range(3)]
    model = Model([*TALK, *turns, turn("three")], [summary(BROKEN)])
    async with open_replica(database_url, agent(probe), model) as replica:
        before = await long_thread(replica)
        run = await replica.start(NOW, thread_id=before.thread_id)
        await run.finished()
        await no_runs_nor_summaries(replica)
        assert (await run.now()).status is RunStatus.DONE
        assert summaries_in(await run.log()) == []
        assert await memory_of(run) == {"failures": 1, "not_before_seq": 5 + FIRST_PAUSE_MESSAGES}
    assert len(model.asked_for_summary) == 1


async def test_a_failed_summary_is_tried_again_once_the_thread_has_grown(database_url: str) -> None:
    count = FIRST_PAUSE_MESSAGES
    model = Model(
        [*TALK, *[turn("on")] * count], [summary(BROKEN), summary(BROKEN), summary(SUMMARY)]
    )
    attempts = []
    async with open_replica(database_url, agent(), model) as replica:
        run = await long_thread(replica)
        for _ in range(count):
            run = await replica.start(NOW, thread_id=run.thread_id)
            await run.finished()
            await no_runs_nor_summaries(replica)
            attempts.append(len(model.asked_for_summary))
        assert await memory_of(run) == {
            "failures": 2,
            "not_before_seq": 13 + 2 * FIRST_PAUSE_MESSAGES,
        }
    assert attempts == [1, 1, 1, 1, 2, 2, 2, 2]


async def test_a_successful_summary_resets_the_count_of_failures(database_url: str) -> None:
    model = Model([*TALK, *[turn("on")] * 5], [summary(BROKEN), summary(SUMMARY)])
    async with open_replica(database_url, agent(), model) as replica:
        run = await long_thread(replica)
        for _ in range(5):
            run = await replica.start(NOW, thread_id=run.thread_id)
            await run.finished()
            await no_runs_nor_summaries(replica)
        assert await memory_of(run) is None
        assert len(summaries_in(await run.log())) == 1


@pytest.mark.parametrize(
    "answer",
    [
        turn(SUMMARY, stop_reason=StopReason.MAX_TOKENS),
        turn("x" * 22_000),
        turn("  "),
        turn(),
    ],
    ids=["cut short", "saves too little", "blank", "empty"],
)
async def test_an_answer_that_is_not_a_summary_is_discarded(
    database_url: str, answer: ScriptedTurn
) -> None:
    model = Model([*TALK, turn("three")], [answer])
    async with open_replica(database_url, agent(), model) as replica:
        before = await long_thread(replica)
        run = await replica.start(NOW, thread_id=before.thread_id)
        await run.finished()
        await no_runs_nor_summaries(replica)
        assert summaries_in(await run.log()) == []
        assert (await memory_of(run))["failures"] == 1


async def test_a_suspended_run_has_no_summary_in_progress(database_url: str) -> None:
    """Nor does each activation begin a summary and abandon it."""
    probe = Probe(asks=1)
    model = Model([*TALK, turn(probe.call("c1")), turn("three")], [summary(Gate(), SUMMARY)])
    async with open_replica(database_url, agent(probe), model) as replica:
        before = await long_thread(replica)
        run = await replica.start(NOW, thread_id=before.thread_id)
        await run.finished()
        await no_runs_nor_summaries(replica)
        assert (await run.now()).status is RunStatus.WAITING
        assert await memory_of(run) == {"failures": 1, "not_before_seq": 5 + FIRST_PAUSE_MESSAGES}
        await run.decide("c1", "respond", result="fine")
        await run.finished(2)
        await no_runs_nor_summaries(replica)
        assert summaries_in(await run.log()) == []
    assert len(model.asked_for_summary) == 1


async def test_a_summary_that_is_ready_when_the_run_suspends_is_stored(database_url: str) -> None:
    probe, slow = Probe(asks=1), Gate()
    model = Model([*TALK, turn(slow, probe.call("c1")), turn("three")], [summary(SUMMARY)])
    async with open_replica(database_url, agent(probe), model) as replica:
        before = await long_thread(replica)
        run = await replica.start(NOW, thread_id=before.thread_id)
        await asyncio.wait_for(slow.reached.wait(), 15)
        await until_summarised(replica)
        slow.open.set()
        await run.finished()
        assert (await run.now()).status is RunStatus.WAITING
        assert len(summaries_in(await run.log())) == 1
        await run.decide("c1", "respond", result="fine")
        await run.finished(2)
    assert shown(model.asked[-1].messages)[0] == "<conversation-summary>"


async def test_a_cancelled_run_ends_at_once_during_a_summary(database_url: str) -> None:
    gate, stalled = Gate(), Gate()
    model = Model([*TALK, turn(stalled)], [summary(gate, SUMMARY)])
    async with open_replica(database_url, agent(), model) as replica:
        before = await long_thread(replica)
        run = await replica.start(NOW, thread_id=before.thread_id)
        await asyncio.wait_for(stalled.reached.wait(), 15)
        await run.cancel("enough")
        await run.finished()
        state = (await run.now()).state
        gate.open.set()
        await no_runs_nor_summaries(replica)
    assert isinstance(state, Done)
    assert isinstance(state.termination, Cancelled)


async def test_a_process_that_stops_does_not_wait_for_summaries(database_url: str) -> None:
    model = Model([*TALK, turn("three")], [summary(Gate(), SUMMARY)])
    async with open_replica(database_url, agent(), model) as replica:
        before = await long_thread(replica)
        run = await replica.start(NOW, thread_id=before.thread_id)
        await run.finished()
        assert replica.worker.slots._side_tasks
        await asyncio.wait_for(replica.stop(), 10)
    async with open_replica(
        database_url, agent(), Model([turn("four")], [summary(SUMMARY)])
    ) as replica:
        again = await replica.start(thread_id=run.thread_id)
        await again.finished()
        await no_runs_nor_summaries(replica)
        assert len(summaries_in(await again.log())) == 1


async def test_a_run_that_is_taken_over_is_summarised_by_its_new_worker(database_url: str) -> None:
    stalled = Gate()
    model = Model([*TALK, turn(stalled)], [summary(Gate(), SUMMARY)])
    survivor = Model([turn("three")], [summary(SUMMARY)])
    async with open_replica(database_url, agent(), model) as lost:
        before = await long_thread(lost)
        run = await lost.start(NOW, thread_id=before.thread_id)
        await asyncio.wait_for(stalled.reached.wait(), 15)
        async with open_replica(database_url, agent(), survivor) as replica:
            await lost.kill()
            again = replica.same(run)
            await again.finished()
            await no_runs_nor_summaries(replica)
            log = await again.log()
    assert len(summaries_in(log)) == 1
    assert [entry.seq for entry in log] == [*range(1, 8)]


async def test_without_a_threshold_no_summary_is_made(database_url: str) -> None:
    model = Model([*TALK, turn("three")], [])
    async with open_replica(database_url, agent(autocompact_threshold=None), model) as replica:
        before = await long_thread(replica)
        await (await replica.start(NOW, thread_id=before.thread_id)).finished()
        assert not replica.worker.slots._side_tasks
    assert model.asked_for_summary == []
