"""The gate and the phases around a call: how plugins stop it, its result, and the effect on the run."""

from collections.abc import Sequence

import pytest

from app.domain.agents.specs import ToolExecution
from app.domain.runs.runs import Done
from app.domain.runs.terminations import BehaviorRequested, Blocked, Cancelled, Failed, Stopped
from app.domain.threads.messages import Role
from app.domain.tickets.tickets import TicketKind, TicketStatus
from app.domain.tools.tool_calls import INTERRUPTED, ResumeMode, SuspensionRequest, ToolResult
from app.llm.scripted.model import in_order, turn
from app.runtime.plugins import Block, HookView, Phase, Plugin, Request, SetResult, Stop, Suspend
from app.runtime.state import Change, StateKey
from app.tools.functions.decorator import tool
from tests.support.event_order import check_run
from tests.support.finishes import asked_by
from tests.support.hooks import Hooks, about, nothing
from tests.support.probes import Probe
from tests.support.replicas import Run, an_agent, of_type, open_replica, texts_of, types_of

pytestmark = pytest.mark.anyio

GATE, BEFORE, AFTER = Phase.TOOL_GATE, Phase.BEFORE_TOOL_EXECUTE, Phase.AFTER_TOOL_EXECUTE
BOTH = pytest.mark.parametrize("mode", list(ToolExecution))
ASK = SuspensionRequest(
    "Really?",
    action="check",
    resume_mode=ResumeMode.USE_DECISION_AS_TOOL_RESULT,
    suspension_id="gate-1",
)


async def termination(run: Run) -> object:
    state = (await run.now()).state
    assert isinstance(state, Done)
    return state.termination


async def results(run: Run) -> list[str]:
    return [e.message.text for e in await run.log() if e.message.role is Role.TOOL]


# --- block ----------------------------------------------------------------------------------------


@BOTH
async def test_multiple_tool_calls_partial_intercept(
    database_url: str, mode: ToolExecution
) -> None:
    probe = Probe()
    hooks = Hooks({GATE: about("c2", Block("not here")), AFTER: nothing})
    script = in_order(turn(probe.call("c1"), probe.call("c2"), probe.call("c3")))
    agent = an_agent(probe.tool, plugins=[hooks.plugin], tool_execution=mode)
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        record = await run.now()
        assert await termination(run) == Blocked("not here")
        assert record.steps == 1
        assert await results(run) == ["probe did it", "not here", INTERRUPTED]
        assert texts_of(await run.log())[0] == ("user", "go")
        assert await run.calls() == {}
        following = await replica.start(thread_id=run.thread_id)
        await following.finished()
    assert [handed.call_id for handed in probe.handed] == ["c1"]
    assert [one["result"]["outcome"] for one in of_type(emitted, "tool_call_done")] == [
        "succeeded",
        "failed",
        "failed",
    ]
    assert emitted[-1]["termination"] == {"type": "blocked", "detail": "not here"}
    # Interrupted and skipped calls have no events; the blocked call has its end.
    assert hooks.calls(AFTER) == ["c1", "c2"]


async def test_tool_intercept_block_terminates_run(database_url: str) -> None:
    """checkpoint_stores_blocked_tool_batch_consistently: user, assistant, reason, interrupted."""
    probe = Probe()
    hooks = Hooks({GATE: about("c1", Block("denied by policy"))})
    script = in_order(turn(probe.call("c1"), probe.call("c2")))
    async with open_replica(
        database_url, an_agent(probe.tool, plugins=[hooks.plugin]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        log = await run.log()
        assert [(e.message.role.value, e.message.text) for e in log] == [
            ("user", "go"),
            ("assistant", ""),
            ("tool", "denied by policy"),
            ("tool", INTERRUPTED),
        ]
    assert len(script.requests) == 1
    assert probe.handed == []


@BOTH
async def test_a_suspension_before_a_block_opens_no_ticket(
    database_url: str, mode: ToolExecution
) -> None:
    probe, needs = Probe(), Probe(name="needs")
    hooks = Hooks({GATE: about("c2", Block("no"))})
    script = in_order(turn(needs.call("c1"), probe.call("c2")))
    agent = an_agent(
        probe.tool,
        needs.tool,
        approval=["needs"],
        plugins=[hooks.plugin],
        tool_execution=mode,
    )
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        assert await run.tickets() == []
        assert await results(run) == [INTERRUPTED, "no"]
    assert emitted[-1]["termination"]["type"] == "blocked"


async def test_blocking_plugin_allows_non_targeted_tool(database_url: str) -> None:
    probe, other = Probe(), Probe(name="other")

    def denies(view: HookView) -> Sequence[Request]:
        return [Block("no")] if view.call and view.call.name == "other" else []

    hooks = Hooks({GATE: denies})
    script = in_order(turn(probe.call("c1")), turn("done"))
    agent = an_agent(probe.tool, other.tool, plugins=[hooks.plugin])
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        emitted = await run.finished()
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert len(probe.handed) == 1


# --- set result -----------------------------------------------------------------------------------


@BOTH
async def test_tool_intercept_set_result_skips_execution(
    database_url: str, mode: ToolExecution
) -> None:
    probe = Probe()
    given = SetResult(ToolResult.success("the cached result", {"cached": True}))
    hooks = Hooks({GATE: about("c1", given), BEFORE: nothing, AFTER: nothing})
    script = in_order(turn(probe.call("c1"), probe.call("c2")), turn("done"))
    agent = an_agent(probe.tool, plugins=[hooks.plugin], tool_execution=mode)
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        assert await results(run) == ['{"cached":true}', "probe did it"]
    assert [handed.call_id for handed in probe.handed] == ["c2"]
    done = of_type(emitted, "tool_call_done")
    assert [(one["tool_call_id"], one["result"]["outcome"]) for one in done] == [
        ("c1", "succeeded"),
        ("c2", "succeeded"),
    ]
    assert (hooks.calls(BEFORE), hooks.calls(AFTER)) == (["c2"], ["c1", "c2"])


async def test_an_error_result_set_by_the_gate_is_an_error(database_url: str) -> None:
    probe = Probe()
    hooks = Hooks({GATE: about("c1", SetResult(ToolResult.error("probe", "not today")))})
    script = in_order(turn(probe.call("c1")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, plugins=[hooks.plugin]), script
    ) as replica:
        run = await replica.start()
        emitted = await run.finished()
    assert of_type(emitted, "tool_call_done")[0]["result"]["outcome"] == "failed"
    assert emitted[-1]["termination"] == {"type": "natural_end"}


# --- suspend --------------------------------------------------------------------------------------


async def test_intercept_suspend_preserves_ticket_resume_mode(database_url: str) -> None:
    probe = Probe()
    hooks = Hooks({GATE: about("c1", Suspend(ASK)), AFTER: nothing})
    script = in_order(turn(probe.call("c1"), probe.call("c2")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, plugins=[hooks.plugin]), script
    ) as replica:
        run = await replica.start()
        emitted = await run.finished()
        [ticket] = await run.tickets()
        assert (ticket.name, ticket.reason, ticket.kind, ticket.resume_mode) == (
            "gate-1",
            "check",
            TicketKind.APPROVAL,
            ResumeMode.USE_DECISION_AS_TOOL_RESULT,
        )
        assert (
            of_type(emitted, "ticket_opened")[0]["ticket"]["resume_mode"]
            == "use_decision_as_tool_result"
        )
        # A suspension by the gate doesn't stop the calls after it.
        assert await run.calls() == {"c1": "suspended", "c2": "succeeded"}
        assert hooks.calls(AFTER) == ["c2"]
        await run.decide("gate-1", "respond", result="given")
        await run.finished(2)
    assert [handed.call_id for handed in probe.handed] == ["c2"]
    assert hooks.calls(AFTER) == ["c2", "c1"]


@pytest.mark.parametrize(
    "first, second, ends",
    [
        (Suspend(ASK), Block("no"), "blocked"),
        (Block("no"), Suspend(ASK), "blocked"),
        (SetResult(ToolResult.success("probe", 1)), Suspend(ASK), "suspended"),
        (SetResult(ToolResult.success("probe", 1)), Block("no"), "blocked"),
    ],
)
async def test_intercept_block_wins_over_suspend(
    database_url: str, first: Request, second: Request, ends: str
) -> None:
    probe = Probe()
    plugins = [
        Hooks({GATE: about("c1", cancel_request)}, name=name).plugin
        for name, cancel_request in (("a", first), ("b", second))
    ]
    script = in_order(turn(probe.call("c1")), turn("done"))
    async with open_replica(database_url, an_agent(probe.tool, plugins=plugins), script) as replica:
        emitted = await (await replica.start()).finished()
    assert emitted[-1]["termination"]["type"] == ends
    assert probe.handed == []


async def test_intercept_same_priority_keeps_first(
    database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    probe = Probe()
    plugins = [
        Hooks({GATE: about("c1", Block(name))}, name=name).plugin for name in ("first", "second")
    ]
    script = in_order(turn(probe.call("c1")))
    async with open_replica(database_url, an_agent(probe.tool, plugins=plugins), script) as replica:
        run = await replica.start()
        await run.finished()
        assert await termination(run) == Blocked("first")
    assert "gate_requests_ignored" in capsys.readouterr().out


# --- order ----------------------------------------------------------------------------------------

UNLOCKED: StateKey[bool, bool] = StateKey("unlocked", lambda: False)


async def test_tool_gate_recheck_executes_before_tool_hook_once(database_url: str) -> None:
    """The first tool unlocks the second, because the gate is called when each call begins."""
    key, door_key = Probe(name="key"), Probe(name="door")

    def locked(view: HookView) -> Sequence[Request]:
        is_open = view.call is not None and view.call.name == "door"
        return [Block("locked")] if is_open and not view.state.get(UNLOCKED) else []

    def unlocks(view: HookView) -> Sequence[Request]:
        return [Change(UNLOCKED, True)] if view.call and view.call.name == "key" else []

    hooks = Hooks({GATE: locked, BEFORE: nothing, AFTER: unlocks}, keys=[UNLOCKED])
    script = in_order(turn(key.call("c1"), door_key.call("c2")), turn("done"))
    agent = an_agent(key.tool, door_key.tool, plugins=[hooks.plugin])
    async with open_replica(database_url, agent, script) as replica:
        emitted = await (await replica.start()).finished()
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert hooks.calls(BEFORE) == ["c1", "c2"]
    assert len(door_key.handed) == 1


async def test_tool_gate_flush_suspension_backfills_rechecked_and_later_calls(
    database_url: str,
) -> None:
    asks, probe = Probe(name="asks", asks=1), Probe()
    hooks = Hooks({GATE: about("c2", Block("no")), BEFORE: nothing})
    script = in_order(turn(asks.call("c1"), probe.call("c2"), probe.call("c3")))
    agent = an_agent(asks.tool, probe.tool, plugins=[hooks.plugin])
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        assert asked_by(emitted[-1]) == ["c1"]
        assert await run.calls() == {"c1": "suspended", "c2": "failed", "c3": "failed"}
    assert hooks.calls(BEFORE) == ["c1"]
    assert probe.handed == []


async def test_an_invalid_call_never_reaches_the_gate(database_url: str) -> None:
    probe = Probe()
    hooks = Hooks({GATE: nothing, BEFORE: nothing, AFTER: nothing})
    script = in_order(
        turn(
            Probe(name="missing").call("c1"),
            Probe(name="probe").call("c2", "fine"),
        ),
        turn("done"),
    )
    async with open_replica(
        database_url, an_agent(probe.tool, plugins=[hooks.plugin]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        assert (await results(run))[0] == "tool 'missing' not found"
    assert hooks.calls(GATE) == ["c2"]
    assert hooks.calls(AFTER) == ["c1", "c2"]


# --- around the call ------------------------------------------------------------------------------


async def test_phase_hook_receives_tool_context(database_url: str) -> None:
    """after_tool_execute_hook_sees_tool_result, too."""
    probe = Probe()
    hooks = Hooks({GATE: nothing, BEFORE: nothing, AFTER: nothing})
    script = in_order(turn(probe.call("c1", "this")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, plugins=[hooks.plugin]), script
    ) as replica:
        await (await replica.start()).finished()
    assert [view.phase for view in hooks.seen] == [GATE, BEFORE, AFTER]
    for view in hooks.seen:
        assert view.call is not None
        assert (view.call.name, view.call.arguments) == ("probe", {"text": "this"})
        assert not view.was_approved
    assert [view.result for view in hooks.seen[:2]] == [None, None]
    assert hooks.seen[2].result == ToolResult.success("probe", "probe did this")


@BOTH
@pytest.mark.parametrize("phase", [BEFORE, AFTER])
async def test_a_stop_lets_the_tool_batch_finish(
    database_url: str, phase: Phase, mode: ToolExecution
) -> None:
    probe = Probe()
    hooks = Hooks({phase: about("c1", Stop(Stopped("enough")))})
    script = in_order(turn(probe.call("c1"), probe.call("c2")))
    agent = an_agent(probe.tool, plugins=[hooks.plugin], tool_execution=mode)
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        assert await termination(run) == Stopped("enough")
        assert await results(run) == ["probe did it", "probe did it"]
    assert len(script.requests) == 1


@BOTH
@pytest.mark.parametrize("phase", [GATE, BEFORE, AFTER])
@pytest.mark.parametrize("broken", ["c1", "c2"])
async def test_a_hook_that_raises_ends_the_run_with_a_result_for_every_call(
    database_url: str, phase: Phase, broken: str, mode: ToolExecution
) -> None:
    probe = Probe()

    def breaks(view: HookView) -> Sequence[Request]:
        if view.call is not None and view.call.id == broken:
            raise ValueError("oh")
        return []

    hooks = Hooks({phase: breaks})
    script = in_order(turn(probe.call("c1"), probe.call("c2"), probe.call("c3")))
    agent = an_agent(probe.tool, plugins=[hooks.plugin], tool_execution=mode)
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        ended = await termination(run)
        assert isinstance(ended, Failed)
        assert ended.code == "plugin_failed"
        texts = await results(run)
        assert len(texts) == 3
        # The log has the result of each executed tool.
        assert texts.count("probe did it") == len(probe.handed)
        assert set(texts) <= {"probe did it", INTERRUPTED}
        following = await replica.start(thread_id=run.thread_id)
        await following.finished()
    assert types_of(emitted).count("tool_call_done") == 3


def hangs_at(call_id: str, stuck: Probe) -> Plugin:
    """A hook that blocks at one call until the test releases it."""

    async def hangs(view: HookView) -> Sequence[Request]:
        if view.call is not None and view.call.id == call_id:
            stuck.reached.set()
            await stuck.open.wait()
        return []

    return Plugin(name="hanging", hooks={GATE: hangs})


async def test_a_cancel_interrupts_a_hook_and_keeps_the_calls_before_it(database_url: str) -> None:
    probe, stuck = Probe(), Probe(name="stuck")
    script = in_order(turn(probe.call("c1"), probe.call("c2")))
    agent = an_agent(probe.tool, plugins=[hangs_at("c2", stuck)])
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await stuck.was_reached()
        await run.cancel("enough")
        emitted = await run.finished()
        assert await termination(run) == Cancelled("enough")
        assert await results(run) == ["probe did it", INTERRUPTED]
        check_run(emitted)


@BOTH
async def test_a_run_that_is_handed_over_at_the_gate_continues_there(
    database_url: str, mode: ToolExecution
) -> None:
    probe, stuck = Probe(), Probe(name="stuck")
    agent = an_agent(probe.tool, plugins=[hangs_at("c2", stuck)], tool_execution=mode)
    script = in_order(turn(probe.call("c1"), probe.call("c2")))
    async with open_replica(database_url, agent, script) as first:
        run = await first.start()
        await stuck.was_reached()
        await first.worker.stop(grace=0)
    stuck.open.set()
    async with open_replica(database_url, agent, in_order(turn("done"))) as second:
        run = second.same(run)
        emitted = await run.finished()
        assert await results(run) == ["probe did it", "probe did it"]
    assert [handed.call_id for handed in probe.handed] == ["c1", "c2"]
    assert types_of(emitted).count("run_start") == 1
    assert "stream_reset" not in types_of(emitted)


@BOTH
@pytest.mark.parametrize("phase", [GATE, BEFORE, AFTER, Phase.STEP_END])
async def test_a_crash_during_a_hook_repeats_no_call(
    database_url: str, phase: Phase, mode: ToolExecution
) -> None:
    probe, stuck = Probe(effect="idempotent"), Probe(name="stuck")

    async def hangs(view: HookView) -> Sequence[Request]:
        if view.phase is Phase.STEP_END or (view.call is not None and view.call.id == "c2"):
            stuck.reached.set()
            await stuck.open.wait()
        return []

    plugin = Plugin(name="hanging", hooks={phase: hangs})
    agent = an_agent(probe.tool, plugins=[plugin], tool_execution=mode)
    calls = turn(probe.call("c1"), probe.call("c2"))
    async with open_replica(database_url, agent, in_order(calls)) as first:
        run = await first.start()
        await stuck.was_reached()
        await first.kill()
    stuck.open.set()
    # Parallel calls run only after the gate has passed all of them, so the step begins again.
    nothing_ran = mode is ToolExecution.PARALLEL and phase in (GATE, BEFORE)
    script = in_order(calls, turn("done")) if nothing_ran else in_order(turn("done"))
    async with open_replica(database_url, agent, script) as second:
        run = second.same(run)
        emitted = await run.finished()
        assert await results(run) == ["probe did it", "probe did it"]
    assert [handed.call_id for handed in probe.handed] == ["c1", "c2"]
    assert emitted[-1]["termination"] == {"type": "natural_end"}


# --- approved -------------------------------------------------------------------------------------


def asks_unless_approved(view: HookView) -> Sequence[Request]:
    return [] if view.was_approved else [Suspend(SuspensionRequest("May it?", action="may"))]


async def test_an_approved_call_passes_the_gate_that_suspended_it(database_url: str) -> None:
    probe = Probe()
    hooks = Hooks({GATE: asks_unless_approved, BEFORE: nothing})
    script = in_order(turn(probe.call("c1")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, plugins=[hooks.plugin]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("c1", "approve", result={"note": 1})
        emitted = await run.finished(2)
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert len(probe.handed) == 1
    assert [view.was_approved for view in hooks.seen] == [False, True, True]
    assert [view.resume_input for view in hooks.seen] == [None, {"note": 1}, {"note": 1}]


async def test_edited_arguments_go_through_the_gate_again(database_url: str) -> None:
    probe = Probe()

    def refuses_one_argument(view: HookView) -> Sequence[Request]:
        if view.call is not None and view.call.arguments == {"text": "forbidden"}:
            return [Block("not that")]
        return asks_unless_approved(view)

    hooks = Hooks({GATE: refuses_one_argument})
    script = in_order(turn(probe.call("c1", "this"), probe.call("c2", "that")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, plugins=[hooks.plugin]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("c1", "edit", arguments={"text": "forbidden"})
        emitted = await run.finished(2)
        assert await termination(run) == Blocked("not that")
        assert (await results(run))[-2:] == ["not that", INTERRUPTED]
        assert {ticket.status for ticket in await run.tickets()} == {
            TicketStatus.DECIDED,
            TicketStatus.VOID,
        }
    assert probe.handed == []
    assert of_type(emitted, "tool_call_resumed")[0]["result"] == {
        "status": "done",
        "outcome": "failed",
        "text": "not that",
    }


async def test_a_gate_that_suspends_again_opens_a_new_ticket(database_url: str) -> None:
    probe = Probe()
    answers: list[object] = []

    def twice(view: HookView) -> Sequence[Request]:
        answers.append(view.resume_input)
        return [] if view.resume_input == "two" else [Suspend(SuspensionRequest("Again?"))]

    hooks = Hooks({GATE: twice})
    script = in_order(turn(probe.call("c1")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, plugins=[hooks.plugin]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("c1", "approve", result="one")
        emitted = await run.finished(2)
        assert asked_by(emitted[-1]) == ["c1:2"]
        await run.decide("c1:2", "approve", result="two")
        emitted = await run.finished(3)
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert answers == [None, "one", "two"]
    assert len(probe.handed) == 1


async def test_a_stop_requested_by_a_plugin_takes_effect_after_a_decision(
    database_url: str,
) -> None:
    probe = Probe()
    hooks = Hooks({AFTER: about("c1", Stop(BehaviorRequested()))})
    script = in_order(turn(probe.call("c1"), probe.call("c2")))
    agent = an_agent(probe.tool, approval=["probe"], plugins=[hooks.plugin])
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("perm_c1", "approve")
        await run.finished(2)
        assert await termination(run) == BehaviorRequested()
        assert (await results(run))[-2:] == ["probe did it", INTERRUPTED]
    assert len(script.requests) == 1


async def test_an_unknown_tool_is_an_error_result_in_a_batch(database_url: str) -> None:
    @tool
    async def here() -> str:
        return "here"

    script = in_order(turn(Probe(name="gone").call("c1"), Probe(name="here").call("c2")), turn(""))
    async with open_replica(database_url, an_agent(here), script) as replica:
        run = await replica.start()
        await run.finished()
        assert await results(run) == ["tool 'gone' not found", "here"]
