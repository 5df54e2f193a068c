"""Retry: a new run replaces a failed one, on the same log and without repeated messages."""

from functools import partial

import pytest

from app.commands.runs.retry import RetryRequest, VersionOfAgent, retry
from app.domain.errors import Conflict, NotFound
from app.domain.ids import RunId
from app.domain.inference.failures import FailureKind, failed
from app.domain.runs.runs import Done, RunRecord, RunStatus
from app.domain.runs.terminations import Outcome, outcome
from app.llm.scripted.model import Fail, Gate, in_order, turn
from app.workers.direct_start import execute_here
from tests.support.invariants import broken_invariants
from tests.support.probes import Probe
from tests.support.problems import the_problem
from tests.support.replicas import ANN, Run, an_agent, of_type, open_replica, texts_of
from tests.support.routes import UNKNOWN
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

FAILS = Fail(failed(FailureKind.CONTENT_FILTERED, "not this"))


async def retried(run: Run, version: VersionOfAgent = VersionOfAgent.SAME) -> Run:
    replica = run.replica
    started = await execute_here(
        replica.worker, partial(retry, replica.ctx, ANN, run.id, RetryRequest(version))
    )
    return Run(replica, started.record)


def outcome_of(record: RunRecord) -> Outcome:
    assert isinstance(record.state, Done)
    return outcome(record.state.termination)


async def test_a_retry_continues_after_the_last_step_of_the_failed_run(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn(probe.call("c1")), turn(FAILS), turn("There."))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        first = await replica.start("please")
        await first.finished()
        before = await first.now()
        log = await first.log()
        second = await retried(first)
        emitted = await second.finished()
        record = await second.now()
        assert await first.now() == before
        assert (await second.log())[: len(log)] == log
        assert texts_of((await second.log())[len(log) :]) == [("assistant", "There.")]
    assert outcome_of(before) is Outcome.FAILED
    assert outcome_of(record) is Outcome.SUCCEEDED
    assert len(probe.handed) == 1, "the finished call is not repeated"
    assert script.requests[2].messages == [entry.message for entry in log]
    assert (record.lineage.retry_of, record.lineage.root_run_id) == (first.id, record.id)
    assert (record.agent_id, record.agent_version) == (before.agent_id, before.agent_version)
    assert record.input == before.input
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    [created] = of_type(emitted, "run_created")
    assert before.input is not None
    assert created["input_message_ids"] == list(before.input.trigger_message_ids)
    assert await broken_invariants(database_url) == {}


async def test_the_messages_of_a_run_that_never_began_go_to_the_retry(database_url: str) -> None:
    script = in_order(turn("hello"))
    async with open_replica(database_url, an_agent(), script, slots=1) as replica:
        assert replica.worker.slots.reserve()
        first = await replica.start("please", here=False)
        await first.cancel("not now")
        assert await first.log() == []
        replica.worker.slots.free()
        second = await retried(first)
        await second.finished()
        record = await second.now()
        log = await second.log()
    assert texts_of(log) == [("user", "please"), ("assistant", "hello")]
    assert record.input is not None
    assert record.input.trigger_message_ids == (log[0].message.id,)
    assert list(first.record.request["input_message_ids"]) == [log[0].message.id]
    assert await broken_invariants(database_url) == {}


async def test_calls_of_a_cancelled_run_have_results_that_the_retry_sees(
    database_url: str,
) -> None:
    probe = Probe(asks=1)
    script = in_order(turn(probe.call("c1")), turn("never mind"))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        first = await replica.start()
        await first.finished()
        await first.cancel()
        second = await retried(first)
        await second.finished()
        assert [role for role, _ in texts_of(await second.log())] == [
            "user",
            "assistant",
            "tool",
            "tool",
            "assistant",
        ]
    assert [message.role.value for message in script.requests[1].messages][-1] == "tool"


async def test_the_partial_answer_of_a_failed_run_is_generated_again(database_url: str) -> None:
    script = in_order(turn("Once upon", FAILS), turn("Once upon a time."))
    async with open_replica(database_url, an_agent(), script) as replica:
        first = await replica.start("a story")
        await first.finished()
        second = await retried(first)
        await second.finished()
        assert [text for _, text in texts_of(await second.log())] == [
            "a story",
            "Once upon",
            "Once upon a time.",
        ]
    assert [message.text for message in script.requests[1].messages] == ["a story"]


async def test_a_retry_can_be_retried(database_url: str) -> None:
    async with open_replica(
        database_url, an_agent(), in_order(turn(FAILS), turn(FAILS), turn("there"))
    ) as replica:
        first = await replica.start()
        await first.finished()
        second = await retried(first)
        await second.finished()
        third = await retried(second)
        await third.finished()
        assert (await third.now()).lineage.retry_of == second.id
        assert (await third.now()).input == (await first.now()).input
        assert texts_of(await third.log()) == [("user", "go"), ("assistant", "there")]


async def test_a_retry_uses_the_failed_runs_agent_version_unless_another_is_requested(
    database_url: str,
) -> None:
    old, new = an_agent(max_rounds=8), an_agent(max_rounds=9)
    async with open_replica(database_url, old, in_order(turn(FAILS))) as replica:
        first = await replica.start()
        await first.finished()
    async with open_replica(database_url, new, in_order(turn(FAILS), turn("there"))) as replica:
        same = await retried(replica.same(first))
        await same.finished()
        current = await retried(same, VersionOfAgent.CURRENT)
        await current.finished()
        versions = [(await run.now()).agent_version for run in (same, current)]
    [old_spec], [new_spec] = old.agents.values(), new.agents.values()
    assert versions == [old_spec.version, new_spec.version]


# --- refused retries ------------------------------------------------------------------------------


async def refused(run: Run, code: str) -> None:
    with pytest.raises(Conflict, match=code):
        await retried(run)


async def test_only_the_latest_run_can_be_retried_and_only_if_it_failed(database_url: str) -> None:
    gate = Gate()
    script = in_order(turn(FAILS), turn(gate, "there"))
    async with open_replica(database_url, an_agent(), script) as replica:
        first = await replica.start()
        await first.finished()
        second = await replica.start("again", thread_id=first.thread_id)
        await refused(first, "not_retryable")
        await refused(second, "run_not_finished")
        gate.open.set()
        await second.finished()
        await refused(second, "not_retryable")
        with pytest.raises(NotFound, match="run_not_found"):
            await execute_here(
                None,
                partial(retry, replica.ctx, ANN, RunId(UNKNOWN), RetryRequest(VersionOfAgent.SAME)),
            )


async def test_a_retry_is_queued_behind_the_run_before_it(database_url: str) -> None:
    gate = Gate()
    script = in_order(turn(gate, "one"), turn("two"))
    async with open_replica(database_url, an_agent(), script) as replica:
        first = await replica.start("first")
        second = await replica.start("second", thread_id=first.thread_id)
        await second.cancel()
        third = await retried(second)
        assert third.record.status is RunStatus.CREATED
        gate.open.set()
        await third.finished()
        assert texts_of(await third.log()) == [
            ("user", "first"),
            ("assistant", "one"),
            ("user", "second"),
            ("assistant", "two"),
        ]


# --- over HTTP ------------------------------------------------------------------------------------


async def test_a_retry_over_http(client: Client) -> None:
    started = await client.start("quick", 'CALL risky {"what": "it"}')
    await client.settled(started["id"])
    path = f"/v1/runs/{started['id']}"
    the_problem(await client.http.post(f"{path}/retry"), 409, "run_not_finished")
    await client.post(f"{path}/cancel", {"reason": "no"})
    key = {"Idempotency-Key": "once more"}
    first = await client.http.post(f"{path}/retry", json={}, headers=key)
    assert first.status_code == 202
    retry = first.json()
    assert retry["retry_of_run_id"] == started["id"]
    assert first.headers["location"] == f"/v1/runs/{retry['id']}"
    assert (await client.settled(retry["id"]))["outcome"] == "succeeded"
    repeated = await client.http.post(f"{path}/retry", json={}, headers=key)
    assert repeated.json() == retry
    the_problem(await client.http.post(f"{path}/retry"), 409, "not_retryable")
    assert (await client.run(started["id"]))["outcome"] == "cancelled"
