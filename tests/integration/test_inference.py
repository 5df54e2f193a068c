"""Answers that fail, break off or are too long: retries, continuations, stored text and metrics."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from prometheus_client import REGISTRY

from app.domain.ids import CallId
from app.domain.inference.failures import FailureKind, failed
from app.domain.inference.options import InferenceOptions, RetryPolicy
from app.domain.runs.runs import Done, RunRecord
from app.domain.runs.terminations import Failed
from app.domain.threads.messages import TruncationReason, Visibility, logged_message_to_json
from app.llm.scripted.model import Call, Fail, Gate, ScriptedReasoning, ScriptedText, in_order, turn
from app.runtime.inference.infer import CONTINUATIONS
from app.runtime.inference.streamed_answer import MAX_ARGUMENT_CHARACTERS
from app.runtime.plugins import HookView, OverrideInference, Phase, Plugin, Request
from app.runtime.ports.models import ModelRequest, StopReason
from tests.support.probes import Probe
from tests.support.replicas import (
    an_agent,
    of_type,
    open_replica,
    texts_of,
    types_of,
)

pytestmark = pytest.mark.anyio

CUT = Fail(failed(FailureKind.STREAM_INTERRUPTED, "the stream ended early"))
BUSY = Fail(failed(FailureKind.OVERLOADED, "come back later"))
SHORT_TIMEOUT = RetryPolicy(
    stream_idle_timeout=0.2, backoff_base=0.01, overloaded_backoff_base=0.01, max_backoff=0.02
)
MAX = StopReason.MAX_TOKENS


def ended_with(record: RunRecord) -> str | None:
    """The code of a failure, or None when it wasn't one."""
    assert isinstance(record.state, Done)
    termination = record.state.termination
    return termination.code if isinstance(termination, Failed) else None


def after_the_user(request: ModelRequest) -> list[tuple[str, str]]:
    return [(message.role.value, message.text) for message in request.messages[1:]]


# --- answers that break off -----------------------------------------------------------------------


async def test_r1_text_is_continued_and_stored_as_one_message(database_url: str) -> None:
    script = in_order(turn(ScriptedText(("Once upon ",)), CUT), turn(ScriptedText(("a time",))))
    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        record, log = await run.now(), await run.log()
    assert "stream_reset" not in types_of(emitted)
    assert "".join(delta["delta"] for delta in of_type(emitted, "text_delta")) == "Once upon a time"
    assert texts_of(log) == [("user", "go"), ("assistant", "Once upon a time")]
    assert isinstance(record.state, Done)
    assert record.state.final_output == "Once upon a time"
    assert types_of(emitted).count("inference_complete") == 1
    [(role, prefix), (prompt_role, prompt)] = after_the_user(script.requests[1])
    assert (role, prefix, prompt_role) == ("assistant", "Once upon ", "user")
    assert "connection reset" in prompt


async def test_r1_each_continuation_starts_from_all_text_so_far(database_url: str) -> None:
    script = in_order(
        turn(ScriptedText(("a",)), CUT), turn(ScriptedText(("b",)), CUT), turn(ScriptedText(("c",)))
    )
    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start()
        await run.finished()
        log = await run.log()
    assert texts_of(log)[1:] == [("assistant", "abc")]
    assert [after_the_user(request)[0][1] for request in script.requests[1:]] == ["a", "ab"]


async def test_r2_complete_calls_are_run_without_another_request(database_url: str) -> None:
    probe = Probe()
    partial_call = Call(tool="other", arguments='{"text": "hal', id=CallId("c2"))
    script = in_order(turn("Let me.", probe.call("c1", "x"), partial_call, CUT), turn("done"))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        log = await run.log()
    assert [handed.call_id for handed in probe.handed] == ["c1"]
    [cancelled_calls] = of_type(emitted, "tool_call_cancel")
    assert (
        cancelled_calls["tool_call_id"],
        cancelled_calls["name"],
        cancelled_calls["reason"],
    ) == (
        "c2",
        "other",
        "connection reset",
    )
    types = types_of(emitted)
    assert types.index("tool_call_cancel") < types.index("tool_call_ready")
    assert types.index("tool_call_ready") < types.index("inference_complete")
    assert len(script.requests) == 2
    assert texts_of(log)[1:3] == [("assistant", "Let me."), ("tool", "probe did x")]


async def test_r2_only_the_model_is_informed_of_the_dropped_call(database_url: str) -> None:
    probe = Probe()
    partial_call = Call(tool="other", arguments='{"te', id=CallId("c2"))
    script = in_order(turn(probe.call("c1", "x"), partial_call, CUT), turn("done"))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        await run.finished()
        note = (await run.log())[3].message
    assert note.visibility is Visibility.INTERNAL
    assert "other" in note.text
    assert script.requests[1].messages[-1].text == note.text


async def test_r2_a_call_without_arguments_is_complete_once_another_began(
    database_url: str,
) -> None:
    probe = Probe()
    call_without_arguments = Call(tool="probe", arguments="", id=CallId("c1"))
    late = Call(tool="probe", arguments="", id=CallId("c2"))
    script = in_order(turn(call_without_arguments, late, CUT), turn("done"))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
    assert [ready["tool_call_id"] for ready in of_type(emitted, "tool_call_ready")] == ["c1"]
    assert [taken["tool_call_id"] for taken in of_type(emitted, "tool_call_cancel")] == ["c2"]


async def test_r3_text_is_continued_and_the_incomplete_call_is_cancelled(database_url: str) -> None:
    probe = Probe()
    partial_call = Call(tool="probe", arguments='{"text": "ha', id=CallId("c1"))
    script = in_order(
        turn(ScriptedText(("I will ",)), partial_call, CUT),
        turn(ScriptedText(("do it",)), probe.call("c1", "again")),
        turn("done"),
    )
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        log = await run.log()
    assert [taken["reason"] for taken in of_type(emitted, "tool_call_cancel")] == [
        "connection reset"
    ]
    assert [handed.text for handed in probe.handed] == ["again"]
    assert texts_of(log)[1] == ("assistant", "I will do it")
    assert "probe" in after_the_user(script.requests[1])[1][1]


@pytest.mark.parametrize(
    "useless",
    [
        ScriptedReasoning(("Let me think",)),
        Call(tool="probe", arguments='{"te'),
        ScriptedText((" \n",)),
    ],
)
async def test_r4_an_answer_without_usable_parts_is_reset_and_requested_again(
    database_url: str, useless: Any
) -> None:
    probe = Probe()
    script = in_order(turn(useless, CUT), turn(ScriptedText(("whole",))))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        log = await run.log()
    assert [reset["reason"] for reset in of_type(emitted, "stream_reset")] == ["connection reset"]
    assert script.requests[1] == script.requests[0]
    assert texts_of(log)[1:] == [("assistant", "whole")]


async def test_a_failure_in_mid_stream_is_published_with_its_kind(database_url: str) -> None:
    script = in_order(turn(ScriptedReasoning(("Hm",)), BUSY), turn("whole"))
    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
    assert of_type(emitted, "stream_reset")[0]["reason"] == "provider overloaded mid-stream"


async def test_a_stalled_stream_is_detected_and_continued(database_url: str) -> None:
    script = in_order(turn(ScriptedText(("half ",)), Gate()), turn(ScriptedText(("whole",))))
    async with open_replica(database_url, an_agent(retry=SHORT_TIMEOUT), script) as replica:
        run = await replica.start()
        await run.finished()
        log = await run.log()
    assert texts_of(log)[1:] == [("assistant", "half whole")]
    assert "idle stall" in after_the_user(script.requests[1])[1][1]


async def test_an_exhausted_recovery_fails_the_run_and_keeps_its_text(
    database_url: str,
) -> None:
    script = in_order(*(turn(ScriptedText((f"{n} ",)), CUT) for n in range(3)), turn("next"))
    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start()
        await run.finished()
        record, log = await run.now(), await run.log()
        following = await replica.start(thread_id=run.thread_id)
        assert (await following.finished())[-1]["termination"] == {"type": "natural_end"}
    assert ended_with(record) == "stream_interrupted"
    assert len(script.requests) == 4
    assert texts_of(log)[1:] == [("assistant", "0 1 2 ")]
    assert log[1].message.cut_short is TruncationReason.FAILED


async def test_a_permanent_failure_in_mid_stream_is_not_retried(database_url: str) -> None:
    script = in_order(turn("so", Fail(failed(FailureKind.CONTENT_FILTERED, "no"))), turn("never"))
    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        record, log = await run.now(), await run.log()
    assert [each["message"] for each in of_type(emitted, "message_done")] == [
        logged_message_to_json(log[1])
    ]
    assert ended_with(record) == "content_filtered"
    assert (log[1].message.text, log[1].message.cut_short) == ("so", TruncationReason.FAILED)
    assert len(script.requests) == 1


# --- answers that fail before their first token ---------------------------------------------------


async def test_a_failed_first_attempt_is_retried_without_a_reset(database_url: str) -> None:
    script = in_order(turn(BUSY), turn(BUSY), turn("there"))
    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
    assert of_type(emitted, "stream_reset") == []
    retries = of_type(emitted, "inference_retry")
    assert [(one["attempt"], one["reason"]) for one in retries] == [
        (2, "overloaded"),
        (3, "overloaded"),
    ]
    assert 0 < retries[0]["wait_ms"] < retries[1]["wait_ms"]
    assert emitted[-1]["result"]["response"] == "there"
    assert len(script.requests) == 3


async def test_a_permanent_failure_is_not_retried(database_url: str) -> None:
    script = in_order(turn(Fail(failed(FailureKind.CONTEXT_OVERFLOW, "too long"))), turn("never"))
    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start()
        await run.finished()
        assert ended_with(await run.now()) == "context_overflow"
    assert len(script.requests) == 1


async def test_fallback_models_get_the_same_number_of_retries(database_url: str) -> None:
    policy = RetryPolicy(max_retries=1, fallback_upstream_models=("second",), backoff_base=0.01)
    script = in_order(turn(CUT), turn(CUT), turn(CUT), turn("there"))
    async with open_replica(database_url, an_agent(retry=policy), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
    models_asked = [request.options.upstream_model for request in script.requests]
    assert models_asked == [None, None, "second", "second"]
    assert of_type(emitted, "inference_complete")[0]["model"] == "second"


async def test_a_retry_delay_beyond_the_maximum_fails_the_run(database_url: str) -> None:
    later = failed(FailureKind.RATE_LIMITED, "slow down", retry_after=3601)
    script = in_order(turn(Fail(later)), turn("never"))
    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        assert ended_with(await run.now()) == "rate_limit_wait_exceeded"
    assert "3601 s" in emitted[-1]["termination"]["detail"]


async def test_a_model_with_an_open_circuit_gets_no_request(database_url: str) -> None:
    script = in_order(*(turn(CUT) for _ in range(5)))
    async with open_replica(
        database_url, an_agent(retry=RetryPolicy(max_retries=0)), script
    ) as replica:
        for code in [*["stream_interrupted"] * 5, "all_models_unavailable"]:
            run = await replica.start()
            await run.finished()
            assert ended_with(await run.now()) == code
    assert len(script.requests) == 5


async def test_cancel_during_the_pause_before_a_retry(database_url: str) -> None:
    refused = asyncio.Event()

    def script(request: ModelRequest) -> Any:
        refused.set()
        return turn(Fail(failed(FailureKind.RATE_LIMITED, "slow down", retry_after=15)))

    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start()
        await asyncio.wait_for(refused.wait(), 10)
        await run.cancel("enough")
        emitted = await asyncio.wait_for(run.finished(), 10)
    assert emitted[-1]["termination"]["type"] == "cancelled"


# --- answers that are too long --------------------------------------------------------------------


async def test_truncated_text_is_continued_as_one_message(database_url: str) -> None:
    script = in_order(
        turn(ScriptedText(("one ",)), stop_reason=MAX),
        turn(ScriptedText(("two ",)), stop_reason=MAX),
        turn("three"),
    )
    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        record, log = await run.now(), await run.log()
    assert texts_of(log)[1:] == [("assistant", "one two three")]
    assert after_the_user(script.requests[2])[0] == ("assistant", "one two ")
    [complete] = of_type(emitted, "inference_complete")
    assert complete["usage"]["completion_tokens"] == record.usage.output_tokens == 3


async def test_truncated_answers_are_continued_up_to_a_bound_and_then_accepted(
    database_url: str,
) -> None:
    probe = Probe()
    script = in_order(
        turn(ScriptedText(("a",)), stop_reason=MAX),
        turn(ScriptedText(("b",)), probe.call("c1")),
        turn(ScriptedText(("c",)), stop_reason=MAX),
        turn(ScriptedText(("d",)), stop_reason=MAX),
    )
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        record, log = await run.now(), await run.log()
    assert [text for role, text in texts_of(log) if role == "assistant"] == ["ab", "cd"]
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert record.run_state is not None
    assert record.run_state["extensions"][CONTINUATIONS.name] == 2


async def test_a_truncated_answer_with_complete_calls_is_not_continued(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn("so", probe.call("c1", "x"), stop_reason=MAX), turn("done"))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        await run.finished()
    assert len(probe.handed) == 1
    assert len(script.requests) == 2


async def test_a_truncated_call_is_requested_again(database_url: str) -> None:
    probe = Probe()
    partial_call = Call(tool="probe", arguments='{"text": "ve', id=CallId("c1"))
    script = in_order(
        turn(partial_call, stop_reason=MAX), turn(probe.call("c2", "short")), turn("done")
    )
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
    assert [taken["reason"] for taken in of_type(emitted, "tool_call_cancel")] == ["length limit"]
    [(role, prompt)] = after_the_user(script.requests[1])
    assert role == "user"
    assert "probe" in prompt
    assert [handed.text for handed in probe.handed] == ["short"]


@pytest.mark.parametrize(
    "arguments",
    ['{"text": [' + "[]," * 120_000 + "0]}", '{"text": "' + "x" * MAX_ARGUMENT_CHARACTERS + '"}'],
    ids=["values", "characters"],
)
async def test_a_call_with_arguments_that_are_too_large_is_requested_again(
    database_url: str, arguments: str
) -> None:
    probe = Probe()
    large = Call(tool="probe", arguments=arguments, id=CallId("c1"))
    script = in_order(turn(large), turn(probe.call("c2", "short")), turn("done"))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
    cancelled = of_type(emitted, "tool_call_cancel")
    assert [taken["reason"] for taken in cancelled] == ["arguments too large"]
    [*_, (role, prompt)] = after_the_user(script.requests[1])
    assert role == "user"
    assert "less at a time" in prompt
    assert [handed.text for handed in probe.handed] == ["short"]


async def test_a_continuation_request_has_the_options_of_the_first(database_url: str) -> None:
    script = in_order(turn("one ", stop_reason=MAX), turn("two"))
    async with open_replica(database_url, an_agent(Probe().tool), script) as replica:
        run = await replica.start(overrides=InferenceOptions(upstream_model="big", max_tokens=9))
        await run.finished()
    first, second = script.requests
    assert first.options == second.options
    assert (first.system_prompt, first.tools) == (second.system_prompt, second.tools)
    assert second.options.upstream_model == "big"


# --- what a cancel cuts short ---------------------------------------------------------------------


async def test_the_text_of_a_cancelled_answer_is_stored_and_marked(database_url: str) -> None:
    gate = Gate()
    script = in_order(turn(ScriptedText(("so far",)), gate), turn("next"))
    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start()
        await asyncio.wait_for(gate.reached.wait(), 10)
        await run.cancel("enough")
        await run.finished()
        log = await run.log()
        following = await replica.start(thread_id=run.thread_id)
        await following.finished()
    message = log[1].message
    assert (message.text, message.cut_short, message.run_id) == (
        "so far",
        TruncationReason.CANCELLED,
        run.id,
    )
    assert after_the_user(script.requests[1])[0] == ("assistant", "so far")


async def test_cancellation_returns_end_turn_and_drops_tool_calls(database_url: str) -> None:
    gate, probe = Gate(), Probe()
    script = in_order(turn("so", probe.call("c1", "x"), gate), turn("next"))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        await asyncio.wait_for(gate.reached.wait(), 10)
        await run.cancel()
        emitted = await run.finished()
        log = await run.log()
    assert [taken["reason"] for taken in of_type(emitted, "tool_call_cancel")] == ["cancelled"]
    assert log[1].message.tool_calls == ()
    assert probe.handed == []
    assert emitted[-1]["termination"]["type"] == "cancelled"


async def test_a_cancel_before_the_first_word_leaves_no_message(database_url: str) -> None:
    gate = Gate()
    async with open_replica(database_url, an_agent(), in_order(turn(gate))) as replica:
        run = await replica.start()
        await asyncio.wait_for(gate.reached.wait(), 10)
        await run.cancel()
        await run.finished()
        assert texts_of(await run.log()) == [("user", "go")]


# --- options --------------------------------------------------------------------------------------


async def test_run_level_model_override_selects_upstream_model(database_url: str) -> None:
    script = in_order(turn("hello"))
    agent = an_agent(options=InferenceOptions(upstream_model="small", temperature=0.5, top_p=0.9))
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start(overrides=InferenceOptions(upstream_model="big", temperature=1.0))
        emitted = await run.finished()
        record = await run.now()
    assert record.request["overrides"] == {"upstream_model": "big", "temperature": 1.0}
    assert script.requests[0].options == InferenceOptions(
        upstream_model="big", temperature=1.0, top_p=0.9
    )
    assert of_type(emitted, "inference_complete")[0]["model"] == "big"


async def test_inference_request_uses_configured_upstream_model(database_url: str) -> None:
    script = in_order(turn("hello"))
    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        assert "overrides" not in (await run.now()).request
    assert script.requests[0].options == InferenceOptions()
    assert of_type(emitted, "inference_complete")[0]["model"] == "scripted"


async def test_overrides_persist_after_a_takeover_and_a_resume(database_url: str) -> None:
    probe, gate = Probe(asks=1), Gate()
    big = InferenceOptions(upstream_model="big")
    first = in_order(turn("half", gate))
    async with open_replica(database_url, an_agent(probe.tool), first) as lost:
        run = await lost.start(overrides=big)
        await asyncio.wait_for(gate.reached.wait(), 10)
        await lost.kill()
        script = in_order(turn(probe.call("c1")), turn("done"))
        async with open_replica(database_url, an_agent(probe.tool), script) as replica:
            resumed = replica.same(run)
            await resumed.finished()
            [ticket] = await resumed.tickets()
            await resumed.decide(ticket.name, "approve")
            await resumed.finished(2)
    assert [request.options for request in script.requests] == [big, big]


async def test_overrides_of_a_run_replace_the_fallbacks_of_its_agent(database_url: str) -> None:
    policy = RetryPolicy(max_retries=0, fallback_upstream_models=("second",), backoff_base=0.01)
    script = in_order(turn(CUT), turn("there"))
    async with open_replica(database_url, an_agent(retry=policy), script) as replica:
        run = await replica.start(overrides=InferenceOptions(fallback_upstream_models=("third",)))
        await run.finished()
    assert [request.options.upstream_model for request in script.requests] == [None, "third"]


@pytest.mark.parametrize("phase", [Phase.AFTER_INFERENCE, Phase.STEP_END])
async def test_the_answer_is_stored_when_a_plugin_fails_after_it(
    database_url: str, phase: Phase
) -> None:
    async def breaks(_: HookView) -> Sequence[Request]:
        raise LookupError("of the plugin")

    plugin = Plugin(name="broken", hooks={phase: breaks})
    async with open_replica(
        database_url, an_agent(plugins=[plugin]), in_order(turn("whole"))
    ) as replica:
        run = await replica.start()
        await run.finished()
        record, log = await run.now(), await run.log()
    assert ended_with(record) == "plugin_failed"
    assert texts_of(log)[1:] == [("assistant", "whole")]
    assert log[1].message.cut_short is None


async def test_retries_are_counted_in_the_metrics(database_url: str) -> None:
    def counted() -> float:
        labels = {"model": "scripted", "failure": "overloaded"}
        return REGISTRY.get_sample_value("holdfast_inference_retries_total", labels) or 0

    before = counted()
    async with open_replica(
        database_url, an_agent(), in_order(turn(BUSY), turn("there"))
    ) as replica:
        await (await replica.start()).finished()
    assert counted() == before + 1


async def test_a_plugin_overrides_the_runs_options_for_one_step(database_url: str) -> None:
    async def cool(view: HookView) -> Sequence[Request]:
        return [OverrideInference(InferenceOptions(temperature=0.0))] if view.steps else []

    probe, plugin = Probe(), Plugin(name="cool", hooks={Phase.BEFORE_INFERENCE: cool})
    script = in_order(turn(probe.call("c1")), turn("done"))
    big = InferenceOptions(upstream_model="big", temperature=1.0)
    async with open_replica(
        database_url, an_agent(probe.tool, plugins=[plugin]), script
    ) as replica:
        await (await replica.start(overrides=big)).finished()
    models_asked = [request.options for request in script.requests]
    assert models_asked == [big, InferenceOptions(upstream_model="big", temperature=0.0)]


async def test_continuations_are_counted_across_a_suspension(database_url: str) -> None:
    probe = Probe(asks=1)
    script = in_order(
        turn(ScriptedText(("a",)), stop_reason=MAX),
        turn(ScriptedText(("b",)), probe.call("c1")),
        turn(ScriptedText(("c",)), stop_reason=MAX),
        turn(ScriptedText(("d",)), stop_reason=MAX),
    )
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("c1", "approve")
        await run.finished(2)
        log = await run.log()
    assert [text for role, text in texts_of(log) if role == "assistant"] == ["ab", "cd"]
    assert len(script.requests) == 4
