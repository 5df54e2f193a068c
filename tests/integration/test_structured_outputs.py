"""Structured output over a takeover, together with limits, as the result of a delegate, and where it is refused."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.domain.errors import Invalid
from app.domain.ids import CallId
from app.domain.inference.options import NO_OPTIONS, InferenceOptions
from app.domain.runs.limits import OnLimit
from app.domain.runs.output_specs import OutputMode, OutputSpec
from app.domain.runs.requested_answers import RequestedAnswer
from app.domain.runs.runs import Done
from app.domain.runs.terminations import Failed, Stopped
from app.domain.tickets.limit_tickets import LIMIT_TOOL_NAME
from app.llm.scripted.model import Call, Gate, ScriptedModel, in_order, turn
from tests.integration.test_remote_runs import replica as remote_replica
from tests.support.echo_backend import Echo
from tests.support.invariants import broken_invariants
from tests.support.replicas import OneModel, Run, an_agent, of_type, open_replica
from tests.support.run_trees import ScriptedAgent, agents_with_delegates, children_of, work_for

pytestmark = pytest.mark.anyio

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["count"],
    "properties": {"count": {"type": "integer", "minimum": 1}},
}
WANTED = RequestedAnswer(output=OutputSpec(schema=SCHEMA, mode=OutputMode.TOOL, retries=1))


def final(count: int) -> Call:
    return Call(tool="final_answer", arguments={"count": count}, id=CallId(f"f{count}"))


async def output_of(run: Run) -> Any:
    state = (await run.now()).state
    assert isinstance(state, Done)
    return state.structured_output


async def test_another_worker_asks_for_the_correction_that_a_dead_one_has_asked_for(
    database_url: str,
) -> None:
    gate = Gate()
    async with open_replica(
        database_url, an_agent(), in_order(turn(final(0)), turn(gate))
    ) as first:
        run = await first.start(answer=WANTED)
        await gate.reached.wait()
        await first.kill()
    script = in_order(turn(final(2)))
    async with open_replica(database_url, an_agent(), script) as second:
        run = second.same(run)
        await run.ended()
        assert await output_of(run) == {"count": 2}
    [request] = script.requests
    assert "doesn't fit its JSON Schema" in request.messages[-1].text
    assert await broken_invariants(database_url) == {}


async def test_a_takeover_gives_the_model_no_more_retries(database_url: str) -> None:
    gate = Gate()
    async with open_replica(
        database_url, an_agent(), in_order(turn(final(0)), turn(gate))
    ) as first:
        run = await first.start(answer=WANTED)
        await gate.reached.wait()
        await first.kill()
    async with open_replica(database_url, an_agent(), in_order(turn(final(-1)))) as second:
        run = second.same(run)
        await run.ended()
        state = (await run.now()).state
        assert isinstance(state, Done)
        assert isinstance(state.termination, Failed)
        assert (state.termination.code, state.structured_output) == ("output_invalid", None)


async def test_the_answer_of_a_delegate_is_data_in_the_result_of_the_call(
    database_url: str,
) -> None:
    catalog, script = agents_with_delegates(
        boss=ScriptedAgent([turn(work_for("scout")), turn("Three.")], delegates=["scout"]),
        scout=ScriptedAgent(
            [turn('{"count": 0}'), turn('{"count": 3}')],
            more={"output": OutputSpec(schema=SCHEMA, mode=OutputMode.NATIVE)},
        ),
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        emitted = await run.ended()
        [child] = await children_of(run)
        assert await output_of(child) == {"count": 3}
    [done] = of_type(emitted, "tool_call_resumed")
    data = done["result"]["data"]
    assert (data["structured_output"], data["outcome"]) == ({"count": 3}, "succeeded")


async def test_a_run_that_a_limit_stops_has_no_structured_output(database_url: str) -> None:
    script = in_order(turn(final(0)), turn(final(1)))
    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start(answer=WANTED, limits={"steps": 1})
        emitted = await run.ended()
        state = (await run.now()).state
        assert isinstance(state, Done)
        assert isinstance(state.termination, Stopped)
        assert state.structured_output is None
    assert "structured_output" not in (emitted[-1]["result"] or {})
    assert len(script.requests) == 1


async def test_a_person_raises_the_limit_and_the_answer_is_corrected(database_url: str) -> None:
    script = in_order(turn(final(0)), turn(final(1)))
    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start(answer=WANTED, limits={"steps": 1}, on_limit=OnLimit.ASK)
        await run.finished()
        [ticket] = await run.tickets()
        assert ticket.tool_name == LIMIT_TOOL_NAME
        await run.decide(ticket.id, "approve")
        await run.ended()
        assert await output_of(run) == {"count": 1}


async def test_a_remote_agent_that_cannot_keep_to_a_schema_refuses_it(database_url: str) -> None:
    async with remote_replica(database_url, Echo()) as replica:
        with pytest.raises(Invalid) as refused:
            await replica.start("say hello", answer=WANTED)
        assert refused.value.code == "backend_unsupported"
        assert refused.value.facts == {"features": ["structured_output"]}
        assert await replica.database.pool.fetchval("SELECT count(*) FROM threads") == 0


class ModelWithNativeOutput(ScriptedModel):
    """Its provider writes structured output, except for one old model."""

    def has_native_output(self, *, with_tools: bool, models: Sequence[str] = ()) -> bool:
        return "old-model" not in models


async def test_a_fallback_that_cannot_keep_to_a_schema_is_asked_by_a_tool(
    database_url: str,
) -> None:
    wanted = RequestedAnswer(output=OutputSpec(schema=SCHEMA))
    with_fallback = InferenceOptions(fallback_upstream_models=("old-model",))
    for overrides, answer, is_native in (
        (NO_OPTIONS, turn('{"count": 1}'), True),
        (with_fallback, turn(final(1)), False),
    ):
        script = in_order(answer)
        models = OneModel(ModelWithNativeOutput("scripted", script))
        async with open_replica(database_url, an_agent(), models) as replica:
            run = await replica.start(answer=wanted, overrides=overrides)
            await run.ended()
            assert await output_of(run) == {"count": 1}
        [request] = script.requests
        assert (request.output is not None) is is_native
