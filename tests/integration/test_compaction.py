"""Summaries beside a run: used when they are there, missed by nobody when they aren't."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from app.agents.catalog import Catalog
from app.domain.errors import InferenceFailed
from app.domain.runs.runs import Done, RunStatus
from app.domain.runs.terminations import Cancelled
from app.domain.threads.messages import (
    LoggedMessage,
    Message,
    MessageRange,
    Role,
    Summary,
    Visibility,
)
from app.llm.scripted.model import Fail, Gate, Part, ScriptedTurn, turn
from app.queries.records import list_messages
from app.runtime.compaction.compaction import FAILURES, FIRST_PAUSE_MESSAGES
from app.runtime.ports import ModelRequest, StopReason, TokenUsage
from app.storage.threads import threads
from tests.support.conditions import eventually
from tests.support.house import ANN, Replica, Run, an_agent, configured, replica
from tests.support.probes import Probe

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
    """Plays an agent's turns, and beside them those of the summariser, each in order."""

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
    """A summary that cost so many tokens each way."""
    return ScriptedTurn(
        turn(*parts).parts, usage=TokenUsage(prompt_tokens=tokens, completion_tokens=tokens)
    )


def cheap(*parts: Part | str) -> ScriptedTurn:
    """An answer that costs one token each way."""
    return ScriptedTurn(turn(*parts).parts, usage=TokenUsage(prompt_tokens=1, completion_tokens=1))


def agent(*probes: Probe, **window: Any) -> Catalog:
    return configured(
        an_agent(*(probe.tool for probe in probes)), context_window={**WINDOW, **window}
    )


async def long_thread(house: Replica) -> Run:
    """Two runs whose talk together is over the threshold for the next one."""
    first = await house.start(LONG)
    await first.finished()
    second = await house.start(LONG, thread_id=first.thread_id)
    await second.finished()
    return second


TALK = [turn("one"), turn("two")]


def summaries_in(log: Sequence[LoggedMessage]) -> list[Summary]:
    blocks = [block for entry in log for block in entry.message.content]
    return [block for block in blocks if isinstance(block, Summary)]


def shown(messages: Sequence[Message]) -> list[str]:
    """The beginning of each, which tells them apart."""
    return [message.text[:22] for message in messages]


async def until_summarised(house: Replica) -> None:
    async def look() -> bool:
        return not house.worker._beside

    await eventually(look)


async def until_free(house: Replica) -> None:
    """Until no run executes."""

    async def look() -> bool:
        return not house.worker.executing

    await eventually(look)


async def until_idle(house: Replica) -> None:
    """Until no run executes, and nothing goes on that was begun beside one."""
    await until_free(house)
    await until_summarised(house)


async def memory_of(run: Run) -> Any:
    async with run.replica.database.reading() as connection:
        state = await threads.state(connection, run.record.tenant, run.thread_id)
    return state.get(FAILURES.name)


async def test_a_summary_that_is_there_in_time_is_shown_from_the_next_step_on(
    database_url: str,
) -> None:
    probe = Probe(held=True)
    model = Model([*TALK, turn(probe.call("c1")), turn("three")], [summary(SUMMARY)])
    async with replica(database_url, agent(probe), model) as house:
        before = await long_thread(house)
        ranges = (await before.now()).input, (await before.now()).output
        old = await before.log()
        run = await house.start(NOW, thread_id=before.thread_id)
        await probe.was_reached()
        await until_summarised(house)
        probe.open.set()
        await run.finished()
        log = await run.log()
        assert ((await before.now()).input, (await before.now()).output) == ranges
        page = await list_messages(
            house.ctx,
            ANN,
            run.thread_id,
            after=None,
            before=None,
            descending=False,
            run_id=None,
            visibility=Visibility.ALL,
            limit=50,
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


async def test_what_it_cost_counts_into_the_run(database_url: str) -> None:
    probe = Probe(held=True)
    model = Model([*TALK, cheap(probe.call("c1")), cheap("three")], [summary(SUMMARY, tokens=1000)])
    async with replica(database_url, agent(probe), model) as house:
        before = await long_thread(house)
        run = await house.start(NOW, thread_id=before.thread_id)
        await probe.was_reached()
        await until_summarised(house)
        probe.open.set()
        await run.finished()
        usage = (await run.now()).usage
    assert (usage.input_tokens, usage.output_tokens) == (1002, 1002)


async def test_the_summariser_is_shown_what_the_summary_will_stand_for(database_url: str) -> None:
    model = Model([*TALK, turn("three")], [summary(SUMMARY)])
    async with replica(database_url, agent(), model) as house:
        before = await long_thread(house)
        await (await house.start(NOW, thread_id=before.thread_id)).finished()
        await until_idle(house)
    [request] = model.asked_for_summary
    [message] = request.messages
    assert message.role is Role.USER
    assert message.text.count(LONG) == 2
    assert "assistant:\none" in message.text
    assert "two" not in message.text
    assert "and now?" not in message.text


async def test_a_run_never_waits_for_a_summary(database_url: str) -> None:
    """It comes late: the thread keeps it all the same, for its next run."""
    gate = Gate()
    model = Model([*TALK, turn("three"), turn("four")], [summary(gate, SUMMARY)])
    async with replica(database_url, agent(), model) as house:
        before = await long_thread(house)
        run = await house.start(NOW, thread_id=before.thread_id)
        await run.finished()
        await until_free(house)
        assert summaries_in(await run.log()) == []
        record = await run.now()
        gate.open.set()
        await until_idle(house)
        assert summaries_in(await run.log()) == [Summary(SUMMARY, MessageRange(1, 3))]
        assert await run.now() == record
        await (await house.start("more", thread_id=run.thread_id)).finished()
        log = await run.log()
    assert [entry.seq for entry in log] == [*range(1, 10)]
    assert shown(model.asked[-1].messages) == [
        "<conversation-summary>",
        "two",
        NOW[:22],
        "three",
        "more",
    ]


async def test_a_late_summary_never_writes_into_a_thread_that_a_run_has(database_url: str) -> None:
    late, busy = Gate(), Gate()
    model = Model(
        [*TALK, turn("three"), turn(busy, "four"), turn("five")],
        [summary(late, "too late"), summary(Gate(), "never"), summary("better")],
    )
    async with replica(database_url, agent(), model) as house:
        before = await long_thread(house)
        await (await house.start(NOW, thread_id=before.thread_id)).finished()
        run = await house.start(NOW, thread_id=before.thread_id)
        await asyncio.wait_for(busy.reached.wait(), 15)
        late.open.set()

        async def look() -> bool:
            return len(house.worker._beside) == 1

        await eventually(look)
        run_id = run.id
        busy.open.set()
        await run.finished()
        assert summaries_in(await run.log()) == []
        assert (await run.now()).id == run_id


async def test_a_summary_that_fails_harms_nothing_and_is_not_tried_in_each_step(
    database_url: str,
) -> None:
    probe = Probe()
    turns = [turn(probe.call(f"c{n}")) for n in range(3)]
    model = Model([*TALK, *turns, turn("three")], [summary(BROKEN)])
    async with replica(database_url, agent(probe), model) as house:
        before = await long_thread(house)
        run = await house.start(NOW, thread_id=before.thread_id)
        await run.finished()
        await until_idle(house)
        assert (await run.now()).status is RunStatus.DONE
        assert summaries_in(await run.log()) == []
        assert await memory_of(run) == {"failures": 1, "not_before_seq": 5 + FIRST_PAUSE_MESSAGES}
    assert len(model.asked_for_summary) == 1


async def test_it_is_tried_again_once_the_thread_has_grown(database_url: str) -> None:
    count = FIRST_PAUSE_MESSAGES
    model = Model(
        [*TALK, *[turn("on")] * count], [summary(BROKEN), summary(BROKEN), summary(SUMMARY)]
    )
    tried = []
    async with replica(database_url, agent(), model) as house:
        run = await long_thread(house)
        for _ in range(count):
            run = await house.start(NOW, thread_id=run.thread_id)
            await run.finished()
            await until_idle(house)
            tried.append(len(model.asked_for_summary))
        assert await memory_of(run) == {
            "failures": 2,
            "not_before_seq": 13 + 2 * FIRST_PAUSE_MESSAGES,
        }
    assert tried == [1, 1, 1, 1, 2, 2, 2, 2]


async def test_a_success_forgets_earlier_failures(database_url: str) -> None:
    model = Model([*TALK, *[turn("on")] * 5], [summary(BROKEN), summary(SUMMARY)])
    async with replica(database_url, agent(), model) as house:
        run = await long_thread(house)
        for _ in range(5):
            run = await house.start(NOW, thread_id=run.thread_id)
            await run.finished()
            await until_idle(house)
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
async def test_an_answer_that_is_no_summary_is_not_used(
    database_url: str, answer: ScriptedTurn
) -> None:
    model = Model([*TALK, turn("three")], [answer])
    async with replica(database_url, agent(), model) as house:
        before = await long_thread(house)
        run = await house.start(NOW, thread_id=before.thread_id)
        await run.finished()
        await until_idle(house)
        assert summaries_in(await run.log()) == []
        assert (await memory_of(run))["failures"] == 1


async def test_a_suspended_run_leaves_no_summary_under_way(database_url: str) -> None:
    """Nor does it begin one in each of its activations, to give it up again."""
    probe = Probe(asks=1)
    model = Model([*TALK, turn(probe.call("c1")), turn("three")], [summary(Gate(), SUMMARY)])
    async with replica(database_url, agent(probe), model) as house:
        before = await long_thread(house)
        run = await house.start(NOW, thread_id=before.thread_id)
        await run.finished()
        await until_idle(house)
        assert (await run.now()).status is RunStatus.WAITING
        assert await memory_of(run) == {"failures": 1, "not_before_seq": 5 + FIRST_PAUSE_MESSAGES}
        await run.decide("c1", "respond", result="fine")
        await run.finished(2)
        await until_idle(house)
        assert summaries_in(await run.log()) == []
    assert len(model.asked_for_summary) == 1


async def test_a_summary_that_is_ready_when_a_run_comes_to_rest_is_kept(database_url: str) -> None:
    probe, slow = Probe(asks=1), Gate()
    model = Model([*TALK, turn(slow, probe.call("c1")), turn("three")], [summary(SUMMARY)])
    async with replica(database_url, agent(probe), model) as house:
        before = await long_thread(house)
        run = await house.start(NOW, thread_id=before.thread_id)
        await asyncio.wait_for(slow.reached.wait(), 15)
        await until_summarised(house)
        slow.open.set()
        await run.finished()
        assert (await run.now()).status is RunStatus.WAITING
        assert len(summaries_in(await run.log())) == 1
        await run.decide("c1", "respond", result="fine")
        await run.finished(2)
    assert shown(model.asked[-1].messages)[0] == "<conversation-summary>"


async def test_a_cancelled_run_ends_at_once_whatever_is_summarised(database_url: str) -> None:
    gate, stalled = Gate(), Gate()
    model = Model([*TALK, turn(stalled)], [summary(gate, SUMMARY)])
    async with replica(database_url, agent(), model) as house:
        before = await long_thread(house)
        run = await house.start(NOW, thread_id=before.thread_id)
        await asyncio.wait_for(stalled.reached.wait(), 15)
        await run.cancel("enough")
        await run.finished()
        state = (await run.now()).state
        gate.open.set()
        await until_idle(house)
    assert isinstance(state, Done)
    assert isinstance(state.termination, Cancelled)


async def test_a_process_that_stops_does_not_wait_for_summaries(database_url: str) -> None:
    model = Model([*TALK, turn("three")], [summary(Gate(), SUMMARY)])
    async with replica(database_url, agent(), model) as house:
        before = await long_thread(house)
        run = await house.start(NOW, thread_id=before.thread_id)
        await run.finished()
        assert house.worker._beside
        await asyncio.wait_for(house.stop(), 10)
    async with replica(database_url, agent(), Model([turn("four")], [summary(SUMMARY)])) as house:
        again = await house.start(thread_id=run.thread_id)
        await again.finished()
        await until_idle(house)
        assert len(summaries_in(await again.log())) == 1


async def test_a_run_that_is_taken_over_is_summarised_by_whoever_goes_on(database_url: str) -> None:
    stalled = Gate()
    model = Model([*TALK, turn(stalled)], [summary(Gate(), SUMMARY)])
    survivor = Model([turn("three")], [summary(SUMMARY)])
    async with replica(database_url, agent(), model) as lost:
        before = await long_thread(lost)
        run = await lost.start(NOW, thread_id=before.thread_id)
        await asyncio.wait_for(stalled.reached.wait(), 15)
        async with replica(database_url, agent(), survivor) as house:
            await lost.kill()
            again = house.same(run)
            await again.finished()
            await until_idle(house)
            log = await again.log()
    assert len(summaries_in(log)) == 1
    assert [entry.seq for entry in log] == [*range(1, 8)]


async def test_no_threshold_no_summary(database_url: str) -> None:
    model = Model([*TALK, turn("three")], [])
    async with replica(database_url, agent(autocompact_threshold=None), model) as house:
        before = await long_thread(house)
        await (await house.start(NOW, thread_id=before.thread_id)).finished()
        assert not house.worker._beside
    assert model.asked_for_summary == []
