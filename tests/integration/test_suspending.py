"""Suspension and resume: which calls wait, which continue, and the effect of a decision in each mode."""

import asyncio
from typing import Any

import pytest

from app.agents.catalog import Catalog
from app.domain.agents.specs import ToolExecution
from app.domain.errors import Conflict, Gone, Invalid, NotFound
from app.domain.ids import CallId
from app.domain.runs.runs import RunStatus
from app.domain.threads.messages import Role
from app.domain.tickets.tickets import TicketStatus
from app.domain.tools.tool_calls import INTERRUPTED, ResumeMode
from app.llm.scripted.model import Call, in_order, turn
from app.runtime.plugins import Phase, Plugin
from app.runtime.ports.tool_context import ToolContext
from app.runtime.state import StateKey
from app.tools.functions.decorator import tool
from tests.support.finishes import asked_by
from tests.support.hooks import Hooks, nothing
from tests.support.probes import Probe
from tests.support.replicas import (
    Run,
    an_agent,
    decision,
    of_type,
    open_replica,
    texts_of,
    types_of,
)

pytestmark = pytest.mark.anyio

MODES = pytest.mark.parametrize("mode", list(ResumeMode))


class SuspendingTool:
    """A tool that suspends in a given mode until it has an answer, and then returns it."""

    def __init__(self, mode: ResumeMode = ResumeMode.REPLAY_TOOL_CALL, questions: int = 1) -> None:
        self.contexts: list[ToolContext] = []

        @tool(name="asking")
        async def suspending(ctx: ToolContext, what: str) -> Any:
            self.contexts.append(ctx)
            if len(self.contexts) <= questions:
                return ctx.suspend(
                    f"Question {len(self.contexts)}?",
                    action="ask",
                    resume_mode=mode,
                    suspension_id="question",
                )
            return {"what": what, "answer": ctx.resume_input}

        self.tool = suspending

    @staticmethod
    def call(id: str, what: str = "this") -> Call:
        return Call(tool="asking", arguments={"what": what}, id=CallId(id))


async def results(run: Run) -> list[str]:
    return [e.message.text for e in await run.log() if e.message.role is Role.TOOL]


# --- suspending -----------------------------------------------------------------------------------


async def test_tool_suspension_transitions_run_to_waiting(database_url: str) -> None:
    """state_snapshot_at_suspension_includes_waiting_status, too."""
    suspending = SuspendingTool()
    async with open_replica(
        database_url, an_agent(suspending.tool), in_order(turn(suspending.call("c1")))
    ) as replica:
        run = await replica.start()
        emitted = await run.finished()
        assert (await run.now()).status is RunStatus.WAITING
        assert await run.calls() == {"c1": "suspended"}
    lifecycle = of_type(emitted, "state_snapshot")[-1]["snapshot"]["extensions"]
    assert lifecycle["__runtime.run_lifecycle"]["status"] == "waiting"
    assert asked_by(emitted[-1]) == ["question"]


async def test_mixed_suspended_and_completed_tools(database_url: str) -> None:
    """sequential_tools_stop_after_first_suspension: c1 succeeded, c2 suspended, c3 failed."""
    probe, suspending = Probe(), SuspendingTool()
    script = in_order(turn(probe.call("c1"), suspending.call("c2"), probe.call("c3")))
    async with open_replica(database_url, an_agent(probe.tool, suspending.tool), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        assert await run.calls() == {"c1": "succeeded", "c2": "suspended", "c3": "failed"}
        assert texts_of(await run.log()) == [
            ("user", "go"),
            ("assistant", ""),
            ("tool", "probe did it"),
            ("tool", "Question 1?"),
            ("tool", INTERRUPTED),
        ]
    assert [one["tool_call_id"] for one in of_type(emitted, "tool_call_done")] == ["c1", "c2", "c3"]
    assert len(probe.handed) == 1


@pytest.mark.parametrize("mode", list(ToolExecution))
async def test_all_tools_suspended_pauses_run(database_url: str, mode: ToolExecution) -> None:
    probe = Probe()
    script = in_order(turn(probe.call("c1"), probe.call("c2")), turn("done"))
    agent = an_agent(probe.tool, approval=["probe"], tool_execution=mode)
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        assert asked_by(emitted[-1]) == ["perm_c1", "perm_c2"]
        assert (await run.now()).status is RunStatus.WAITING
    assert (len(script.requests), len(probe.handed)) == (1, 0)


async def test_suspend_on_step_two_preserves_first_step_context(database_url: str) -> None:
    probe, suspending = Probe(), SuspendingTool()
    script = in_order(turn("first ", probe.call("c1")), turn(suspending.call("c2")), turn("done"))
    async with open_replica(database_url, an_agent(probe.tool, suspending.tool), script) as replica:
        run = await replica.start()
        await run.finished()
        assert (await run.now()).steps == 2
        await run.decide("question", "approve", result="yes")
        emitted = await run.finished(2)
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert [m.text for m in script.requests[2].messages] == [
        "go",
        "first ",
        "probe did it",
        "",
        '{"what":"this","answer":"yes"}',
    ]
    assert [one["step"] for one in of_type(emitted, "step_start")] == [1, 2, 3]


# --- the three modes ------------------------------------------------------------------------------


@MODES
async def test_the_allowed_decisions_depend_on_the_mode(
    database_url: str, mode: ResumeMode
) -> None:
    suspending = SuspendingTool(mode)
    async with open_replica(
        database_url, an_agent(suspending.tool), in_order(turn(suspending.call("c1")))
    ) as replica:
        run = await replica.start()
        await run.finished()
        [ticket] = await run.tickets()
    runs_it = {"approve", "edit"} & {action.value for action in ticket.allowed_actions}
    assert ticket.resume_mode is mode
    assert runs_it == (
        set() if mode is ResumeMode.USE_DECISION_AS_TOOL_RESULT else {"approve", "edit"}
    )


@pytest.mark.parametrize(
    "mode, action, more, tool_text, executions",
    [
        ("replay_tool_call", "approve", {}, '{"what":"this","answer":null}', 2),
        (
            "replay_tool_call",
            "edit",
            {"arguments": {"what": "that"}},
            '{"what":"that","answer":null}',
            2,
        ),
        (
            "pass_decision_to_tool",
            "approve",
            {"result": {"color": "red"}},
            '{"what":"this","answer":{"color":"red"}}',
            2,
        ),
        (
            "pass_decision_to_tool",
            "edit",
            {"arguments": {"what": "that"}},
            '{"what":"that","answer":null}',
            2,
        ),
        ("use_decision_as_tool_result", "respond", {"result": {"n": 1}}, '{"n":1}', 1),
        ("use_decision_as_tool_result", "respond", {"result": None}, "null", 1),
        ("use_decision_as_tool_result", "cancel", {"reason": "off"}, "off", 1),
        ("use_decision_as_tool_result", "reject", {"reason": "no"}, "Denied: no", 1),
    ],
)
async def test_resume_with_each_mode(
    database_url: str, mode: str, action: str, more: dict[str, Any], tool_text: str, executions: int
) -> None:
    """replay_tool_call_executes_original_tool; a decision as the result doesn't execute it."""
    suspending = SuspendingTool(ResumeMode(mode))
    script = in_order(turn(suspending.call("c1")), turn("done"))
    async with open_replica(database_url, an_agent(suspending.tool), script) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("question", action, **more)
        emitted = await run.finished(2)
        assert (await results(run))[-1] == tool_text
        # The log keeps the model's arguments, although others were executed.
        [entry] = [e for e in await run.log() if e.message.tool_calls]
        assert entry.message.tool_calls[0].arguments == {"what": "this"}
        [ticket] = await run.tickets()
        assert ticket.arguments == {"what": "this"}
        assert ticket.decision is not None
        assert ticket.decision.answer.payload == more.get("result", more.get("arguments"))
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert len(suspending.contexts) == executions
    assert [one["tool_call_id"] for one in of_type(emitted, "tool_call_resumed")] == ["c1"]


async def test_a_resumed_call_knows_its_earlier_question(database_url: str) -> None:
    suspending = SuspendingTool()
    script = in_order(turn(suspending.call("c1")), turn("done"))
    async with open_replica(database_url, an_agent(suspending.tool), script) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("question", "approve", result="yes")
        await run.finished(2)
    first, second = suspending.contexts
    assert (first.suspension_id, first.suspension_reason, first.resume_input) == (None, None, None)
    assert (second.suspension_id, second.suspension_reason) == ("question", "ask")
    assert second.idempotency_key == first.idempotency_key


async def test_hooks_see_a_result_given_by_a_decision(database_url: str) -> None:
    hooks = Hooks({Phase.BEFORE_TOOL_EXECUTE: nothing, Phase.AFTER_TOOL_EXECUTE: nothing})
    suspending = SuspendingTool(ResumeMode.USE_DECISION_AS_TOOL_RESULT)
    script = in_order(turn(suspending.call("c1")), turn("done"))
    agent = an_agent(suspending.tool, plugins=[hooks.plugin])
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("question", "respond", result="given")
        await run.finished(2)
    assert [view.phase for view in hooks.seen] == [
        Phase.BEFORE_TOOL_EXECUTE,
        Phase.AFTER_TOOL_EXECUTE,
    ]
    assert hooks.seen[1].result is not None
    assert hooks.seen[1].result.data == "given"


# --- which call, and when -------------------------------------------------------------------------


async def test_prepare_resume_accepts_suspension_id_targets(database_url: str) -> None:
    """A decision may name the ticket's name, its id or the id of its call."""
    probe = Probe()
    calls = [probe.call(id) for id in ("c1", "c2", "c3")]
    script = in_order(turn(*calls), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        third = (await run.tickets())[2]
        await run.decide_all(
            decision("perm_c1", "approve"),
            decision("c2", "approve"),
            decision(third.id, "approve"),
        )
        emitted = await run.finished(2)
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert [handed.call_id for handed in probe.handed] == ["c1", "c2", "c3"]


async def test_resume_rejects_unknown_call_id(database_url: str) -> None:
    suspending = SuspendingTool()
    async with open_replica(
        database_url, an_agent(suspending.tool), in_order(turn(suspending.call("c1")))
    ) as replica:
        run = await replica.start()
        await run.finished()
        with pytest.raises(NotFound) as refused:
            await run.decide("unknown", "approve")
        assert refused.value.code == "ticket_not_found"
        assert await run.calls() == {"c1": "suspended"}
        assert (await run.now()).status is RunStatus.WAITING


async def test_resume_rejects_non_waiting_run(database_url: str) -> None:
    """A call with a result refuses other decisions, while the run continues and after its end."""
    probe = Probe()
    script = in_order(turn(probe.call("c1"), probe.call("c2")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("perm_c1", "approve")
        await run.finished(2)
        with pytest.raises(Conflict):
            await run.decide("perm_c1", "reject")
        await run.cancel()
        with pytest.raises(Conflict):
            await run.decide("perm_c1", "reject")
        with pytest.raises(Gone):
            await run.decide("perm_c2", "approve")
        with pytest.raises(NotFound):
            await run.decide("c9", "approve")
    assert len(probe.handed) == 1


async def test_cancelled_resume_is_emitted_once_even_when_other_calls_replay(
    database_url: str,
) -> None:
    probe = Probe()
    calls = [probe.call(id) for id in ("c1", "c2", "c3")]
    script = in_order(turn(*calls), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("perm_c2", "cancel", reason="off")
        await run.finished(2)
        again = await run.decide("perm_c2", "cancel", reason="off")
        assert again.results[0].is_duplicate
        await run.decide("perm_c1", "approve")
        await run.finished(3)
        await run.decide("perm_c3", "approve")
        emitted = await run.finished(4)
    resumed = [one["tool_call_id"] for one in of_type(emitted, "tool_call_resumed")]
    assert resumed == ["c2", "c1", "c3"]
    assert emitted[-1]["termination"] == {"type": "natural_end"}


async def test_single_tool_call_can_suspend_multiple_times(database_url: str) -> None:
    suspending = SuspendingTool(questions=2)
    script = in_order(turn(suspending.call("c1")), turn("done"))
    async with open_replica(database_url, an_agent(suspending.tool), script) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("question", "approve", result="one", decision_id="first")
        emitted = await run.finished(2)
        assert asked_by(emitted[-1]) == ["question:c1"]
        # The first decision sent again doesn't answer the second question.
        again = await run.decide("question", "approve", result="one", decision_id="first")
        assert again.results[0].is_duplicate
        await run.decide("question:c1", "approve", result="two")
        emitted = await run.finished(3)
        first, second = await run.tickets()
    assert first.name != second.name
    assert len(suspending.contexts) == 3
    [resumed] = of_type(emitted, "tool_call_resumed")
    assert resumed["result"]["data"] == {"what": "this", "answer": "two"}


async def test_resumed_calls_do_not_serialize_neighboring_fresh_batches(database_url: str) -> None:
    """[c1, c2, c4, c5] execute at once, c3 after its approval. No other call runs or is reported again."""
    probe, risky = Probe(effect="read", held=True), Probe(name="risky")
    calls = [
        probe.call("c1"),
        probe.call("c2"),
        risky.call("c3"),
        probe.call("c4"),
        probe.call("c5"),
    ]
    script = in_order(turn(*calls), turn("done"))
    agent = an_agent(
        probe.tool, risky.tool, approval=["risky"], tool_execution=ToolExecution.PARALLEL
    )
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        async with asyncio.timeout(60):
            while len(probe.handed) < 4:
                probe.reached.clear()
                await probe.reached.wait()
        probe.open.set()
        await run.finished()
        before = await run.log()
        await run.decide("perm_c3", "approve")
        emitted = await run.finished(2)
        assert await run.calls() == {}
        after = (await run.log())[len(before) :]
    assert [entry.message.role for entry in after] == [Role.TOOL, Role.ASSISTANT]
    assert [handed.call_id for handed in risky.handed] == ["c3"]
    assert types_of(emitted).count("inference_complete") == 2


async def test_concurrent_suspend_and_resume(database_url: str) -> None:
    """Concurrent decisions about one run are all applied, each once."""
    probe = Probe()
    calls = [probe.call(f"c{number}", str(number)) for number in range(6)]
    script = in_order(turn(*calls), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        await asyncio.gather(*(run.decide(f"perm_c{n}", "approve") for n in range(6)))
        async with asyncio.timeout(60):
            count = 2
            while (emitted := await run.finished(count))[-1]["termination"]["type"] == "suspended":
                count += 1
    assert sorted(handed.call_id for handed in probe.handed) == [f"c{n}" for n in range(6)]
    assert emitted[-1]["termination"] == {"type": "natural_end"}


# --- crashes while decisions are applied ----------------------------------------------------------

SEEN: StateKey[int, int] = StateKey("seen", lambda: 0, lambda value, update: value + update)


async def test_a_second_question_survives_a_crash_before_it_was_open(database_url: str) -> None:
    """The first call has run and suspends again. The worker dies during the second call."""
    contexts: list[str] = []

    @tool(name="asking")
    async def suspending(ctx: ToolContext) -> Any:
        contexts.append(ctx.call_id)
        ctx.update(SEEN, 1)
        if ctx.resume_input == "two":
            return "both"
        return ctx.suspend("More?")

    held = Probe(name="held", held=True, effect="idempotent")

    def agent() -> Catalog:
        keys = Plugin(name="keys", keys=[SEEN])
        return an_agent(suspending, held.tool, approval=["held", "asking"], plugins=[keys])

    script = in_order(turn(Probe(name="asking").call("c1"), held.call("c2")))
    async with open_replica(database_url, agent(), script) as first:
        run = await first.start()
        await run.finished()
        await run.decide_all(decision("perm_c1", "approve"), decision("perm_c2", "approve"))
        await held.was_reached()
        await first.kill()
    held.open.set()
    async with open_replica(database_url, agent(), in_order(turn("done"))) as second:
        run = second.same(run)
        emitted = await run.finished(2)
        assert asked_by(emitted[-1]) == ["c1"]
        assert contexts == ["c1"]
        assert [ticket.status for ticket in await run.tickets()] == [
            TicketStatus.DECIDED,
            TicketStatus.DECIDED,
            TicketStatus.OPEN,
        ]
        await run.decide("c1", "approve", result="two")
        emitted = await run.finished(3)
        stored = (await run.now()).run_state or {}
        assert stored["extensions"]["seen"] == 2
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert contexts == ["c1", "c1"]
    assert len(held.handed) == 2


async def test_an_edit_that_violates_the_schema_is_refused(database_url: str) -> None:
    suspending = SuspendingTool()
    async with open_replica(
        database_url, an_agent(suspending.tool), in_order(turn(suspending.call("c1")))
    ) as replica:
        run = await replica.start()
        await run.finished()
        with pytest.raises(Invalid) as refused:
            await run.decide("question", "edit", arguments={"what": 5})
        assert refused.value.code == "arguments_invalid"
    assert len(suspending.contexts) == 1
