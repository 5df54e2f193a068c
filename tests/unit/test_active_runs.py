"""What an executing run knows of itself: its step, what it has used, and whether it has answered."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.domain.ids import AgentId
from app.domain.inference.failures import FailureKind, failed
from app.domain.inference.options import RetryPolicy
from app.domain.runs.runs import (
    AWAITING_CHILDREN,
    AWAITING_EVENT,
    LIMIT_REACHED,
    Done,
    Usage,
)
from app.domain.runs.terminations import Cancelled, Failed, Stopped
from app.domain.structs import replace
from app.domain.threads.messages import Message, Role
from app.domain.tickets.tickets import TicketKind
from app.llm.scripted.model import Fail, ScriptedModel, ScriptedTurn, turn
from app.runtime import endings
from app.runtime.active_run import ActiveRun
from app.runtime.agent import placeholder_agent
from app.runtime.phases import HookRequests
from app.runtime.plugins import (
    HandOff,
    HookView,
    Phase,
    Plugin,
    PluginSet,
    Request,
    Stop,
    SuspendRun,
    ViewRequest,
)
from app.runtime.ports.models import ModelRequest
from app.runtime.state import Change, StateKey
from app.runtime.tool_calls.background import has_answered
from tests.support.hooks import Answer, Hooks, watching
from tests.support.logs import call, log_of, message
from tests.support.plain_runs import PlainRun
from tests.support.records import AT, a_ticket

pytestmark = pytest.mark.anyio


async def fresh_run() -> ActiveRun:
    """A run as the loop gets it."""
    found: list[ActiveRun] = []
    run = PlainRun()
    run.before_it_executes = found.append
    await run.start()
    return found[0]


async def test_input_and_output_tokens_count() -> None:
    run = await fresh_run()
    run.usage = Usage(30, 4)
    assert run.used.tokens == 34


async def test_between_steps_messages_belong_to_the_last_step() -> None:
    run = await fresh_run()
    run.steps, run.in_step, run.open_calls = 3, False, {}
    assert (run.step, run.step_index) == (None, 2)
    run.in_step = True
    assert (run.step, run.step_index) == (4, 3)
    run.in_step = False
    later = cast(Any, SimpleNamespace(step_index=3))
    run.open_calls = {cast(Any, "c"): later}
    assert run.step_index == 3


BAD_REQUEST = failed(FailureKind.INVALID_REQUEST, "no such parameter")
OWN = message("a", Role.ASSISTANT, "Hello.", run="r")


@pytest.mark.parametrize(
    "log, in_step, answered",
    [
        ([OWN], False, True),
        ([OWN], True, False),
        ([OWN, message("s", Role.SYSTEM, "summary")], False, True),
        ([], False, False),
        ([message("s", Role.SYSTEM, "prompt")], False, False),
        ([OWN, message("u", Role.USER, "more")], False, False),
        ([message("u", Role.USER, "go", run="r")], False, False),
        ([message("a", Role.ASSISTANT, "Hello.", run="other")], False, False),
        ([message("a", Role.ASSISTANT, "", call("c"), run="r")], False, False),
    ],
)
def test_a_run_has_answered_if_its_log_ends_with_its_own_answer(
    log: list[Message], in_step: bool, answered: bool
) -> None:
    run = SimpleNamespace(in_step=in_step, log=log_of(*log), record=SimpleNamespace(id="r"))
    assert has_answered(cast(ActiveRun, run)) is answered


def test_the_longest_pause_that_plugins_ask_for_counts() -> None:
    assert HookRequests().pause is None
    asked = (SuspendRun(5, "a", "first"), SuspendRun(9, "b", "second"), SuspendRun(0, "c", "third"))
    pause = HookRequests(asked).pause
    assert pause is not None
    assert (pause.seconds, pause.source, pause.detail) == (9, "second", "b")


def test_the_first_stop_and_the_last_hand_off_of_the_plugins_count() -> None:
    first, second = Stopped("first"), Stopped("second")
    asked = (Stop(first), HandOff(AgentId("a")), Stop(second), HandOff(AgentId("b")))
    assert HookRequests(asked).stop is first
    assert HookRequests(asked).hand_off == "b"
    assert (HookRequests().stop, HookRequests().hand_off) == (None, None)


async def test_a_run_that_has_read_its_inbox_has_no_unread_inputs() -> None:
    run = await fresh_run()
    run.unread_inputs = 2
    await run.read_inbox()
    assert run.unread_inputs == 0


def test_a_set_has_the_transforms_of_the_plugins_that_have_one() -> None:
    def first(messages: Sequence[Message], request: ViewRequest) -> Sequence[Message]:
        return messages

    plugins = [Plugin(name="none"), Plugin(name="first", transform=first), Plugin(name="last")]
    assert PluginSet(plugins).transforms == (first,)
    assert PluginSet([Plugin(name="none")]).transforms == ()


async def test_an_answer_that_keeps_breaking_off_is_recovered_as_often_as_the_policy_allows() -> (
    None
):
    broken = [turn("a", Fail(failed(FailureKind.STREAM_INTERRUPTED, "cut"))) for _ in range(9)]
    run = PlainRun(*broken, retry=RetryPolicy(max_stream_retries=3, backoff_base=0))
    await run.start()
    assert len(run.requests) == 4


async def test_a_hook_that_fails_beside_others_fails_the_run() -> None:
    def broken(_: HookView) -> Sequence[Request]:
        raise ValueError("no line")

    plugins = [
        watching(Phase.STEP_START, name="first").plugin,
        Hooks({Phase.STEP_START: broken}, name="second").plugin,
    ]
    run = PlainRun(plugins=plugins)
    await run.start()
    state = run.rows.record.state
    assert isinstance(state, Done)
    assert isinstance(state.termination, Failed)
    assert state.termination.code == "plugin_failed"
    assert "second" in state.termination.detail


def broken_end(_: HookView) -> Sequence[Request]:
    raise ValueError("no line")


@pytest.mark.parametrize(
    "make, kind",
    [
        (lambda: turn("Done."), "plugin_failed"),
        (lambda: turn(Fail(BAD_REQUEST)), "invalid_request"),
    ],
)
async def test_a_failing_hook_at_the_end_fails_only_a_run_that_has_not_failed(
    make: Callable[[], ScriptedTurn], kind: str
) -> None:
    run = PlainRun(make(), plugins=[Hooks({Phase.RUN_END: broken_end}).plugin])
    await run.start()
    state = run.rows.record.state
    assert isinstance(state, Done)
    assert isinstance(state.termination, Failed)
    assert state.termination.code == kind


async def test_a_failing_hook_at_the_end_leaves_a_cancelled_run_cancelled() -> None:
    run = PlainRun(plugins=[Hooks({Phase.RUN_END: broken_end}).plugin])
    run.before_it_executes = lambda active: active.interruption.cancel("enough")
    await run.start()
    state = run.rows.record.state
    assert isinstance(state, Done)
    assert state.termination == Cancelled("enough")


async def test_a_hook_outside_of_calls_sees_no_approval() -> None:
    hooks = watching(*(set(Phase) - {Phase.TOOL_GATE}))
    await PlainRun(plugins=[hooks.plugin]).start()
    assert [view.was_approved for view in hooks.seen] == [False] * len(hooks.seen)
    assert hooks.seen


class StoppedClock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.time = AT

    def now(self) -> datetime:
        return self.time


async def test_an_inference_says_how_many_milliseconds_it_took() -> None:
    clock, run = StoppedClock(), PlainRun()

    def answer(_: ModelRequest) -> ScriptedTurn:
        clock.time += timedelta(seconds=90)
        return turn("Done.")

    run.agent = replace(run.agent, model=ScriptedModel("slow", answer))
    run.before_it_executes = lambda active: setattr(active, "clock", clock)
    await run.start()
    [complete] = run.events("inference_complete")
    assert complete["duration_ms"] == 90_000


NOTES: StateKey[str, str] = StateKey("notes", lambda: "")


async def test_a_hook_that_changes_the_same_key_is_called_again_and_its_requests_count() -> None:
    def change(text: str, *more: Request) -> Answer:
        return lambda view: [Change(NOTES, view.state.get(NOTES) + text), *more]

    stop = Stop(Stopped("done", "as asked"))
    run = PlainRun(
        plugins=[
            Hooks({Phase.RUN_START: change("a")}, name="first", keys=[NOTES]).plugin,
            Hooks({Phase.RUN_START: change("b", stop)}, name="second").plugin,
        ]
    )
    await run.start()
    record = run.rows.record
    assert isinstance(record.state, Done)
    assert record.state.termination == stop.termination
    assert record.run_state is not None
    assert record.run_state["extensions"]["notes"] == "ab"


def test_a_replacement_of_an_agent_is_known_as_one() -> None:
    assert placeholder_agent(AgentId("gone")).is_placeholder


@pytest.mark.parametrize(
    "kinds, text",
    [
        ([TicketKind.APPROVAL, TicketKind.LIMIT], LIMIT_REACHED),
        ([TicketKind.CHILD], AWAITING_CHILDREN),
        ([TicketKind.EVENT], AWAITING_EVENT),
        ([TicketKind.CHILD, TicketKind.EVENT], AWAITING_EVENT),
        ([TicketKind.CHILD, TicketKind.APPROVAL], "suspended"),
    ],
)
def test_a_waiting_run_names_what_it_waits_for(kinds: list[TicketKind], text: str) -> None:
    assert endings._waiting_message([a_ticket(kind=kind) for kind in kinds]) == text
