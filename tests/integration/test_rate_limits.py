"""Rate limits: a long pause of a provider suspends the run, and the run resumes without a person."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from prometheus_client import REGISTRY

from app.clock import new_id
from app.commands.inputs.send import InputMode, InputRequest, ToRun, send_input
from app.domain.errors import Conflict
from app.domain.ids import MessageId
from app.domain.inference.failures import FailureKind, failed
from app.domain.inference.options import RetryPolicy
from app.domain.runs.limits import used_by
from app.domain.runs.rate_limits import RateLimitPolicy, partial_answer_of, waits_of
from app.domain.runs.runs import Done, RunRecord, RunStatus, Waiting, WaitingReason
from app.domain.runs.terminations import Cancelled, Failed
from app.domain.threads.messages import (
    Message,
    Role,
    Text,
    TruncationReason,
    logged_message_to_json,
)
from app.llm.scripted.model import Fail, Gate, Script, ScriptedModel, ScriptedText, in_order, turn
from app.llm.with_breaker import Breakers
from app.queries.explain import explain
from app.queries.explain_reasons import ReasonCode
from app.queries.snapshots import read_run_snapshot
from app.runtime.plugins import HookView, Phase, Plugin, Request, SuspendRun
from app.storage.queue import deliveries
from app.storage.runs import claims, unattended
from app.storage.runs.runs import RunKey
from tests.integration.test_compaction import LONG, NOW, Model, agent, long_thread
from tests.support.conditions import eventually
from tests.support.invariants import broken_invariants
from tests.support.probes import Probe
from tests.support.replicas import (
    ANN,
    TIMEOUT_SECONDS,
    OneModel,
    Run,
    an_agent,
    of_type,
    open_replica,
    texts_of,
    types_of,
)

pytestmark = pytest.mark.anyio

SOON = RateLimitPolicy(suspend_after=0.1, max_wait=30)
"""Suspends for what the tests can wait for."""
CUT = Fail(failed(FailureKind.STREAM_INTERRUPTED, "the stream ended early"))


def limited(seconds: float) -> Fail:
    return Fail(failed(FailureKind.RATE_LIMITED, "slow down", retry_after=seconds))


def waiting(record: RunRecord) -> Waiting:
    assert isinstance(record.state, Waiting)
    assert record.state.reason is WaitingReason.RATE_LIMIT
    return record.state


def key_of(record: RunRecord) -> RunKey:
    return RunKey(record.tenant, record.thread_id, record.id, record.attempt)


async def due_at(run: Run) -> datetime | None:
    async with run.replica.database.reading() as connection:
        return await deliveries.due_at(connection, key_of(await run.now()))


async def end_wait(run: Run, *, delivery: bool = True) -> None:
    """Ends the wait: moves the time in the run's row and that of its delivery, or deletes the delivery."""
    pool = run.replica.database.pool
    await pool.execute(
        "UPDATE runs SET waiting_until = now() - interval '1 second' WHERE id = $1", run.id
    )
    of_run = "WHERE dedupe_key LIKE '%' || $1 || '%' AND status = 'queued'"
    if delivery:
        await pool.execute(f"UPDATE pgq.pgqueuer SET execute_after = now() {of_run}", run.id)
    else:
        await pool.execute(f"DELETE FROM pgq.pgqueuer {of_run}", run.id)


# --- suspending and resuming ----------------------------------------------------------------------


async def test_a_long_pause_suspends_the_run_which_resumes_without_a_person(
    database_url: str,
) -> None:
    probe = Probe()
    script = in_order(turn(probe.call("c1", "x")), turn(limited(0.5)), turn("there"))
    catalog = an_agent(probe.tool)
    async with open_replica(database_url, catalog, script, rate_limits=SOON) as replica:
        before = datetime.now(UTC)  # noqa: TID251  the time of the run's own clock
        run = await replica.start()
        emitted = await run.finished()
        until = datetime.fromisoformat(emitted[-1]["waiting"]["until"])
        assert before + timedelta(seconds=0.49) < until
        assert emitted[-1]["termination"] == {"type": "suspended"}
        assert emitted[-1]["waiting"]["reason"] == "rate_limit"
        assert emitted[-1]["waiting"]["needs_decision"] is False
        assert "scripted" in emitted[-1]["waiting"]["detail"]
        assert "slow down" in emitted[-1]["waiting"]["detail"]
        emitted = await run.finished(2)
        resumed = [event["ts"] for event in of_type(emitted, "run_start")][1]
        assert datetime.fromisoformat(resumed) >= until
        record = await run.now()
        assert record.steps == 2
        assert waits_of(record.run_state).count == 1
    assert emitted[-1]["result"]["response"] == "there"
    assert [handed.text for handed in probe.handed] == ["x"]
    assert types_of(emitted).count("run_finish") == 2
    assert await broken_invariants(database_url) == {}


async def test_a_suspended_run_holds_nothing_but_a_delivery_for_its_time(database_url: str) -> None:
    script = in_order(turn(limited(600)), turn("there"))
    async with open_replica(database_url, an_agent(), script, slots=1) as replica:
        run = await replica.start()
        await run.finished()
        await eventually(lambda: _is_idle(replica.worker.executing))
        record = await run.now()
        assert record.state == waiting(record)
        assert waiting(record).until == await due_at(run)
        assert replica.worker.slots.reserve()
        replica.worker.slots.free()


async def _is_idle(executing: int) -> bool:
    return executing == 0


async def test_a_worker_waits_for_a_short_pause_itself(database_url: str) -> None:
    script = in_order(turn(limited(0.05)), turn("there"))
    async with open_replica(database_url, an_agent(), script, rate_limits=SOON) as replica:
        emitted = await (await replica.start()).finished()
    assert emitted[-1]["result"]["response"] == "there"


async def test_runs_with_the_same_retry_time_resume_at_different_times(database_url: str) -> None:
    script = in_order(*[turn(limited(600))] * 4)
    async with open_replica(database_url, an_agent(), script) as replica:
        started = [await replica.start() for _ in range(4)]
        for run in started:
            await run.finished()
        moments = [waiting(await run.now()).until for run in started]
    assert len(set(moments)) == 4


async def test_a_run_resumes_after_the_loss_of_its_delivery(database_url: str) -> None:
    script = in_order(turn(limited(600)), turn("there"))
    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start()
        await run.finished()
        await end_wait(run, delivery=False)
        emitted = await run.finished(2)
    assert emitted[-1]["result"]["response"] == "there"


async def test_another_replica_resumes_the_run_of_one_that_died(database_url: str) -> None:
    script = in_order(turn(limited(0.5)), turn("there"))
    async with open_replica(database_url, an_agent(), script, rate_limits=SOON) as first:
        run = await first.start()
        await run.finished()
        until = waiting(await run.now()).until
        await first.kill()
    async with open_replica(database_url, an_agent(), script, rate_limits=SOON) as second:
        emitted = await second.same(run).finished(2)
    assert until is not None
    assert datetime.fromisoformat(of_type(emitted, "run_start")[1]["ts"]) >= until
    assert emitted[-1]["result"]["response"] == "there"


async def test_no_delivery_resumes_a_run_before_its_time(database_url: str) -> None:
    async with open_replica(database_url, an_agent(), in_order(turn(limited(600)))) as replica:
        run = await replica.start()
        await run.finished()
        record = await run.now()
        claimed = await claims.claim(
            replica.database.pool,
            record.tenant,
            record.thread_id,
            record.id,
            replica.me,
            TIMEOUT_SECONDS,
        )
        assert claimed is None
        async with replica.database.transaction() as connection:
            assert await unattended.past_rate_limit(connection, grace=0, limit=10) == []
            assert await unattended.with_unnoticed_decision(connection, grace=0, limit=10) == []


async def test_a_run_that_would_wait_beyond_its_maximum_ends(database_url: str) -> None:
    script = in_order(turn(limited(0.2)), turn(limited(29.9)))
    async with open_replica(database_url, an_agent(), script, rate_limits=SOON) as replica:
        run = await replica.start()
        emitted = await run.finished(2)
        state = (await run.now()).state
    assert isinstance(state, Done)
    assert isinstance(state.termination, Failed)
    assert state.termination.code == "rate_limit_wait_exceeded"
    assert "asks to wait 29.9 s" in emitted[-1]["termination"]["detail"]
    assert "HOLDFAST_RATE_LIMIT_MAX_WAIT" in emitted[-1]["termination"]["detail"]


async def test_waiting_does_not_count_as_wall_seconds(database_url: str) -> None:
    script = in_order(turn(limited(2.1)), turn("there"))
    async with open_replica(database_url, an_agent(), script, rate_limits=SOON) as replica:
        run = await replica.start(limits={"wall_seconds": 2})
        emitted = await run.finished(2)
        assert used_by(await run.now()).wall_seconds < 2
    assert emitted[-1]["termination"] == {"type": "natural_end"}


async def test_an_open_breaker_suspends_the_run(database_url: str) -> None:
    script = in_order(*[turn(CUT)] * 6)
    catalog = an_agent(retry=RetryPolicy(max_retries=4, backoff_base=0.001))
    async with open_replica(database_url, catalog, script) as replica:
        first = await replica.start()
        await first.finished()
        second = await replica.start()
        emitted = await second.finished()
        assert waiting(await second.now()).until is not None
    assert emitted[-1]["waiting"]["detail"].startswith(
        "The circuit breaker of model scripted is open"
    )
    assert len(script.requests) == 5


async def test_the_number_of_waits_for_a_failing_model_is_bounded_by_its_retries(
    database_url: str,
) -> None:
    script = in_order(*[turn(CUT)] * 9)
    catalog = an_agent(retry=RetryPolicy(max_retries=4, backoff_base=0.001))
    async with open_replica(database_url, catalog, script) as replica:
        await (await replica.start()).finished()
        run = await replica.start()
        for count in range(1, 5):
            await run.finished(count)
            assert waits_of((await run.now()).run_state).breaker_waits == count
            await end_wait(run)
        emitted = await run.finished(5)
    assert emitted[-1]["termination"]["code"] == "all_models_unavailable"
    assert len(script.requests) == 5


async def test_an_answer_resets_the_number_of_waits_for_the_model(database_url: str) -> None:
    probe = Probe()
    script = in_order(*[turn(CUT)] * 5, turn(probe.call("c1")), turn("done"))
    catalog = an_agent(probe.tool, retry=RetryPolicy(max_retries=4, backoff_base=0.001))
    models = ModelCatalogWithClock(script)
    async with open_replica(database_url, catalog, models) as replica:
        await (await replica.start()).finished()
        run = await replica.start()
        await run.finished()
        models.clock.move(timedelta(seconds=31))
        await end_wait(run)
        await run.finished(2)
        waits = waits_of((await run.now()).run_state)
    assert (waits.count, waits.breaker_waits) == (1, 0)
    assert len(probe.handed) == 1


class _MovedClock:
    def __init__(self) -> None:
        self._by = timedelta()

    def move(self, by: timedelta) -> None:
        self._by += by

    def now(self) -> datetime:
        return datetime.now(UTC) + self._by  # noqa: TID251  the wall clock, moved by the test


class ModelCatalogWithClock(OneModel):
    """One model behind breakers whose time a test moves."""

    def __init__(self, script: Script) -> None:
        super().__init__(ScriptedModel("scripted", script))
        self.clock = _MovedClock()
        self._breakers = Breakers(self.clock)


async def test_each_wait_is_measured(database_url: str) -> None:
    labels = {"model": "scripted", "origin": "provider"}
    before = REGISTRY.get_sample_value("holdfast_rate_limit_wait_seconds_sum", labels) or 0.0
    async with open_replica(database_url, an_agent(), in_order(turn(limited(600)))) as replica:
        await (await replica.start()).finished()
    after = REGISTRY.get_sample_value("holdfast_rate_limit_wait_seconds_sum", labels)
    assert after == before + 600


# --- partial answers ------------------------------------------------------------------------------


async def test_partial_text_is_stored_and_completed(database_url: str) -> None:
    script = in_order(turn(ScriptedText(("Once upon ",)), CUT), turn(limited(0.5)), turn("a time"))
    async with open_replica(database_url, an_agent(), script, rate_limits=SOON) as replica:
        run = await replica.start()
        await run.finished()
        assert (await read_run_snapshot(replica.ctx, ANN, run.id)).open_parts.text == "Once upon "
        emitted = await run.finished(2)
        record, log = await run.now(), await run.log()
    assert "stream_reset" not in types_of(emitted)
    assert "".join(delta["delta"] for delta in of_type(emitted, "text_delta")) == "Once upon a time"
    assert texts_of(log) == [("user", "go"), ("assistant", "Once upon a time")]
    assert isinstance(record.state, Done)
    assert record.state.final_output == "Once upon a time"
    assert record.usage.output_tokens > 0
    assert partial_answer_of(record.run_state) is None
    asked = [(message.role.value, message.text) for message in script.requests[2].messages]
    assert asked[:2] == [("user", "go"), ("assistant", "Once upon ")]
    assert "connection reset" in asked[2][1]


async def test_text_survives_several_waits_and_a_takeover(database_url: str) -> None:
    gate = Gate()
    script = in_order(
        turn(ScriptedText(("one ",)), CUT),
        turn(limited(0.2)),
        turn(ScriptedText(("two ",)), CUT),
        turn(limited(0.2)),
        turn(ScriptedText(("lost",)), gate),
        turn("three"),
    )
    async with open_replica(database_url, an_agent(), script, rate_limits=SOON) as first:
        run = await first.start()
        await asyncio.wait_for(gate.reached.wait(), TIMEOUT_SECONDS)
        await first.kill()
    async with open_replica(database_url, an_agent(), script, rate_limits=SOON) as second:
        emitted = await second.same(run).ended()
        log = await second.same(run).log()
    assert texts_of(log) == [("user", "go"), ("assistant", "one two three")]
    assert [reset["reason"] for reset in of_type(emitted, "stream_reset")] in (["takeover"], [])
    assert await broken_invariants(database_url) == {}


@pytest.mark.parametrize("ends", ["cancelled", "cancelled at its claim", "out of its limit"])
async def test_partial_text_is_kept_if_the_run_ends_during_the_wait(
    database_url: str, ends: str
) -> None:
    script = in_order(turn(ScriptedText(("Once upon ",)), CUT), turn(limited(600)), turn("never"))
    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start(limits={"tokens": 1} if ends == "out of its limit" else None)
        await run.finished()
        await replica.database.pool.execute(
            "UPDATE runs SET output_tokens = 5 WHERE id = $1", run.id
        )
        if ends == "cancelled":
            assert (await run.cancel("enough")).is_done
        else:
            if ends == "cancelled at its claim":
                await replica.database.pool.execute(
                    "UPDATE runs SET cancel_requested_at = now() WHERE id = $1", run.id
                )
            await end_wait(run)
        emitted = await run.finished(2)
        record, log = await run.now(), await run.log()
    assert isinstance(record.state, Done)
    assert record.state.final_output == emitted[-1]["result"]["response"] == "Once upon "
    assert texts_of(log) == [("user", "go"), ("assistant", "Once upon ")]
    stopped = TruncationReason.STOPPED if ends == "out of its limit" else TruncationReason.CANCELLED
    assert log[-1].message.cut_short is stopped
    assert [each["message"] for each in of_type(emitted, "message_done")] == [
        logged_message_to_json(log[-1])
    ]
    assert log[-1].message.run_id == run.id
    assert record.output.range is not None
    assert len(script.requests) == 2
    assert await broken_invariants(database_url) == {}


# --- commands during the wait ---------------------------------------------------------------------


async def test_a_cancel_during_the_wait_ends_the_run_at_once(database_url: str) -> None:
    async with open_replica(database_url, an_agent(), in_order(turn(limited(600)))) as replica:
        run = await replica.start()
        await run.finished()
        assert (await run.cancel("enough")).is_done
        record = await run.now()
        assert isinstance(record.state, Done)
        assert record.state.termination == Cancelled("enough")
    assert await broken_invariants(database_url) == {}


async def test_a_cancel_concurrent_with_the_suspension_ends_the_run(database_url: str) -> None:
    async with open_replica(database_url, an_agent(), in_order(turn(limited(600)))) as replica:
        run = await replica.start()
        await run.finished()
        record = await run.now()
        await replica.database.pool.execute(
            "UPDATE runs SET cancel_requested_at = now() WHERE id = $1", run.id
        )
        async with replica.database.transaction() as connection:
            await deliveries.enqueue(
                connection, RunKey(record.tenant, record.thread_id, record.id, record.attempt + 1)
            )
        emitted = await run.finished(2)
    assert emitted[-1]["termination"]["type"] == "cancelled"


def steering(text: str, mode: InputMode = InputMode.STEER) -> InputRequest:
    message = Message(id=MessageId(new_id()), role=Role.USER, content=(Text(text),))
    return InputRequest(messages=(message,), mode=mode)


@pytest.mark.parametrize("answer_so_far", ["no text", "partial text"])
async def test_a_message_is_read_at_the_resume_and_does_not_resume_the_run_earlier(
    database_url: str, answer_so_far: str
) -> None:
    if answer_so_far == "no text":
        script = in_order(turn(limited(600)), turn("I see."))
        texts: Sequence[str] = ("go", "by the way", "I see.")
    else:
        script = in_order(
            turn(ScriptedText(("Once ",)), CUT), turn(limited(600)), turn("more."), turn("I see.")
        )
        texts = ("go", "Once more.", "by the way", "I see.")
    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start()
        await run.finished()
        due = await due_at(run)
        await send_input(replica.ctx, ANN, ToRun(run.id), steering("by the way"), deliver=True)
        assert (await run.now()).status is RunStatus.WAITING
        assert await due_at(run) == due
        await end_wait(run)
        await run.finished(2)
        assert [text for _, text in texts_of(await run.log())] == list(texts)
        assert (await run.now()).is_done
    assert await broken_invariants(database_url) == {}


async def test_a_message_cannot_resume_a_run_that_waits_for_a_rate_limit(database_url: str) -> None:
    async with open_replica(database_url, an_agent(), in_order(turn(limited(600)))) as replica:
        run = await replica.start()
        await run.finished()
        request = steering("go on", InputMode.RESUME_OPEN_RUN)
        with pytest.raises(Conflict) as caught:
            await send_input(replica.ctx, ANN, ToRun(run.id), request, deliver=True)
        assert caught.value.code == "run_not_waiting"
        assert (await run.now()).unread_inputs == 0


async def test_explain_of_a_queued_run_says_when_the_run_before_it_resumes(
    database_url: str,
) -> None:
    async with open_replica(database_url, an_agent(), in_order(turn(limited(600)))) as replica:
        run = await replica.start()
        emitted = await run.finished()
        behind = await replica.start(thread_id=run.thread_id)
        reasons = (await explain(replica.ctx, ANN, behind.id)).reasons
    assert [reason.code for reason in reasons] == [
        ReasonCode.QUEUED_BEHIND_RUN,
        ReasonCode.THREAD_WAITING,
    ]
    assert emitted[-1]["waiting"]["until"] in reasons[1].text
    assert "ticket" not in reasons[1].text


async def test_a_wait_does_not_count_as_queue_delay(database_url: str) -> None:
    name = "holdfast_queue_delay_seconds_sum"
    script = in_order(turn(limited(2)), turn("there"))
    async with open_replica(database_url, an_agent(), script, rate_limits=SOON) as replica:
        run = await replica.start()
        await run.finished()
        before = REGISTRY.get_sample_value(name) or 0.0
        emitted = await run.finished(2)
        after = REGISTRY.get_sample_value(name) or 0.0
    until = datetime.fromisoformat(of_type(emitted, "run_finish")[0]["waiting"]["until"])
    resumed = datetime.fromisoformat(of_type(emitted, "run_start")[1]["ts"])
    assert 0 < after - before <= (resumed - until).total_seconds() + 0.001


async def test_explain_names_the_model_and_the_time(database_url: str) -> None:
    async with open_replica(database_url, an_agent(), in_order(turn(limited(600)))) as replica:
        run = await replica.start()
        emitted = await run.finished()
        found = await explain(replica.ctx, ANN, run.id)
        [reason] = found.reasons
        assert reason.code is ReasonCode.RATE_LIMITED
        assert "model scripted" in reason.text
        assert emitted[-1]["waiting"]["until"] in reason.text
        assert found.next_attempt_at == waiting(await run.now()).until


# --- summaries ------------------------------------------------------------------------------------


async def test_a_summary_that_is_rate_limited_suspends_nothing(database_url: str) -> None:
    model = Model([turn(LONG), turn(LONG), turn("here")], [turn(limited(600))])
    async with open_replica(database_url, agent(), model) as replica:
        before = await long_thread(replica)
        run = await replica.start(NOW, thread_id=before.thread_id)
        emitted = await run.finished()
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert len(model.asked_for_summary) == 1


# --- plugins --------------------------------------------------------------------------------------


def limiter(phase: Phase, *answers: Sequence[Request]) -> Plugin:
    """Makes each of these requests in turn, and then none."""
    left = list(answers)

    async def hook(view: HookView) -> Sequence[Request]:
        return left.pop(0) if left else []

    return Plugin(name="quota", hooks={phase: hook})


@pytest.mark.parametrize("phase", [Phase.RUN_START, Phase.STEP_START, Phase.BEFORE_INFERENCE])
async def test_a_plugin_may_suspend_the_run_for_a_time(database_url: str, phase: Phase) -> None:
    plugin = limiter(phase, [SuspendRun(0.2, "the quota is used up")])
    script = in_order(turn("there"))
    catalog = an_agent(plugins=[plugin])
    async with open_replica(database_url, catalog, script, rate_limits=SOON) as replica:
        run = await replica.start()
        emitted = await run.finished(2)
    suspended, done = of_type(emitted, "run_finish")
    assert suspended["waiting"]["reason"] == "rate_limit"
    assert suspended["waiting"]["detail"] == (
        "The plugin quota asks for a pause: the quota is used up"
    )
    assert done["result"]["response"] == "there"


async def test_a_plugin_that_requests_a_wait_without_end_ends_the_run(database_url: str) -> None:
    plugin = limiter(Phase.STEP_START, *[[SuspendRun(0.2, "again")]] * 9)
    limits = RateLimitPolicy(suspend_after=0.1, max_wait=0.3)
    catalog = an_agent(plugins=[plugin])
    async with open_replica(database_url, catalog, in_order(), rate_limits=limits) as replica:
        emitted = await (await replica.start()).ended()
    assert emitted[-1]["termination"]["code"] == "rate_limit_wait_exceeded"


async def test_a_plugin_can_only_suspend_where_nothing_would_be_lost(database_url: str) -> None:
    plugin = limiter(Phase.AFTER_INFERENCE, [SuspendRun(1, "too late")])
    catalog = an_agent(plugins=[plugin])
    async with open_replica(database_url, catalog, in_order(turn("there"))) as replica:
        emitted = await (await replica.start()).finished()
    assert emitted[-1]["termination"]["code"] == "plugin_failed"


# --- the row --------------------------------------------------------------------------------------


async def test_only_a_run_that_waits_for_a_rate_limit_has_a_time_of_its_resume(
    database_url: str,
) -> None:
    async with open_replica(database_url, an_agent(), in_order(turn(limited(600)))) as replica:
        run = await replica.start()
        await run.finished()
        for broken in ("waiting_until = NULL", "waiting_reason = 'user_input'"):
            with pytest.raises(asyncpg.CheckViolationError):
                await replica.database.pool.execute(
                    f"UPDATE runs SET {broken} WHERE id = $1", run.id
                )
