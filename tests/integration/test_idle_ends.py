"""Runs that end while no worker executes them: each looks like a run that ended at work, and its hooks are
called once."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from app.agents.catalog import Catalog
from app.backends.remote.run import REMOTE
from app.commands.followups.dispatch import run_followup
from app.commands.runs.new_run import OnActive
from app.commands.threads.cancel_thread import cancel_thread
from app.commands.tickets.expire import expire_due
from app.domain.agents.backend_results import OUTPUT_KEY
from app.domain.children.followups import MAX_TRIES, CallRunEnd, RetryAfter
from app.domain.runs.limits import OnLimit
from app.domain.runs.runs import LIFECYCLE, Done, RunStatus
from app.domain.runs.terminations import Cancelled, Stopped
from app.domain.tickets.terms import OnExpiry
from app.domain.tools.tool_calls import INTERRUPTED
from app.llm.scripted.model import Gate, ScriptedTurn, in_order, turn
from app.queries.explain import ReasonCode, explain
from app.runtime.plugins import HookView, Phase, Plugin, Request
from app.runtime.state import Change, StateKey, StateScope
from app.storage.queue import run_ends
from app.storage.threads import threads
from tests.support.conditions import eventually
from tests.support.echo_backend import Echo
from tests.support.families import Member, family, family_of, lose_errands, work_for
from tests.support.hooks import Hooks, watching
from tests.support.house import ANN, Event, Replica, Run, an_agent, decision, of_type, replica
from tests.support.invariants import broken_invariants
from tests.support.probes import Probe

pytestmark = pytest.mark.anyio

NO_ROW_LEFT = "SELECT NOT EXISTS (SELECT FROM pending_run_ends)"
NO_JOB_LEFT = "SELECT NOT EXISTS (SELECT FROM pgq.pgqueuer WHERE entrypoint = 'errand')"
WORDS = "Let me see."


@dataclass
class Stage:
    """One replica with an agent whose `run_end` hook is watched."""

    house: Replica
    witness: Hooks
    probe: Probe

    async def waiting(self, **more: Any) -> Run:
        run = await self.house.start(**more)
        await run.finished()
        assert (await run.now()).status is RunStatus.WAITING
        return run


def hooked(probe: Probe, witness: Hooks, **more: Any) -> Catalog:
    return an_agent(probe.tool, plugins=[witness.plugin], **{"approval": ["probe"], **more})


@asynccontextmanager
async def stage(
    url: str, *turns: ScriptedTurn, slots: int = 10, probe: Probe | None = None, **more: Any
) -> AsyncIterator[Stage]:
    probe, witness = probe or Probe(), watching(Phase.RUN_END)
    script = in_order(*(turns or (turn(WORDS, probe.call("c1"), probe.call("c2")),)))
    async with replica(url, hooked(probe, witness, **more), script, slots=slots) as house:
        yield Stage(house, witness, probe)


async def called_once(there: Stage, run: Run) -> None:
    """The follow-up is done, and the hook was called for the run by it."""
    await eventually(lambda: there.house.database.pool.fetchval(NO_ROW_LEFT))
    await eventually(lambda: there.house.database.pool.fetchval(NO_JOB_LEFT))
    assert [view.run_id for view in there.witness.seen].count(run.id) == 1


async def assert_ended(
    run: Run, *, words: str = WORDS, calls: Sequence[str] = ("c1", "c2")
) -> None:
    """Each line of what an end looks like."""
    said = await run.ended()
    record = await run.now()
    assert isinstance(record.state, Done)
    assert isinstance(record.state.termination, Cancelled)
    assert record.state.final_output == (words or None)
    assert said[-1]["event_type"] == "run_finish"
    assert said[-1]["result"] == {
        "response": words,
        "status": "done",
        "status_reason": "cancelled",
    }
    assert _last_shown(said) == "state_snapshot"
    shown = of_type(said, "state_snapshot")[-1]["snapshot"]["extensions"][LIFECYCLE]
    assert (shown["status"], shown["status_reason"]) == ("done", "cancelled")
    assert record.run_state is not None
    assert record.run_state["extensions"][LIFECYCLE] == shown
    reported = [one for one in of_type(said, "tool_call_done") if one["outcome"] != "suspended"]
    assert [one["id"] for one in reported] == list(calls)
    assert {one["result"]["message"] for one in reported} <= {INTERRUPTED}


def _last_shown(said: Sequence[Event]) -> str:
    kinds = [event["event_type"] for event in said if event["event_type"] != "rolled_back"]
    last: str = kinds[-2]
    return last


# --- each way to end --------------------------------------------------------------------------------


async def test_a_cancel_while_people_are_asked(database_url: str) -> None:
    async with stage(database_url) as there:
        run = await there.waiting()
        assert (await run.cancel()).is_settled
        await assert_ended(run)
        await called_once(there, run)
    assert await broken_invariants(database_url) == {}


async def test_a_cancel_between_an_answer_and_the_worker_that_would_use_it(
    database_url: str,
) -> None:
    async with stage(database_url) as there:
        run = await there.waiting()
        await there.house.take_nothing_new()
        await there.house.worker.stop(grace=0)
        await run.decide("perm_c1", "approve")
        await run.cancel()
        await assert_ended(run)
        assert there.probe.handed == []
    assert await broken_invariants(database_url) == {}


async def test_a_cancel_before_a_worker_has_claimed_the_run(database_url: str) -> None:
    async with stage(database_url, slots=0) as there:
        run = await there.house.start(here=False)
        assert (await run.cancel()).is_settled
        await assert_ended(run, words="", calls=())
        await called_once(there, run)
    assert await broken_invariants(database_url) == {}


async def test_a_cancel_while_the_run_is_queued(database_url: str) -> None:
    async with stage(database_url) as there:
        first = await there.waiting()
        run = await there.house.start("behind", thread_id=first.thread_id)
        assert (await run.cancel()).is_settled
        await assert_ended(run, words="", calls=())
        await called_once(there, run)
        assert (await first.now()).status is RunStatus.WAITING
    assert await broken_invariants(database_url) == {}


async def test_a_cancel_of_the_whole_thread(database_url: str) -> None:
    async with stage(database_url) as there:
        first = await there.waiting()
        behind = await there.house.start("behind", thread_id=first.thread_id)
        answer = await cancel_thread(there.house.ctx, ANN, first.thread_id, reason=None)
        assert answer.is_settled
        await assert_ended(first)
        await assert_ended(behind, words="", calls=())
        await called_once(there, first)
        await called_once(there, behind)
    assert await broken_invariants(database_url) == {}


@pytest.mark.parametrize("on_active", [OnActive.INTERRUPT, OnActive.ROLLBACK])
async def test_another_run_that_takes_its_place(database_url: str, on_active: OnActive) -> None:
    probe = Probe()
    turns = turn(WORDS, probe.call("c1"), probe.call("c2")), turn("Right away.")
    async with stage(database_url, *turns, probe=probe) as there:
        run = await there.waiting()
        wanted = await there.house.start("no", thread_id=run.thread_id, on_active=on_active)
        await assert_ended(run)
        await wanted.ended()
        await called_once(there, run)
        [view] = [view for view in there.witness.seen if view.run_id == run.id]
        assert [entry.message.text for entry in view.log] == [
            "go",
            WORDS,
            *(text for text in _placeholders(view.log)),
            INTERRUPTED,
            INTERRUPTED,
        ]
    assert await broken_invariants(database_url) == {}


def _placeholders(log: Sequence[Any]) -> list[str]:
    return [entry.message.text for entry in log[2:-2]]


async def test_a_ticket_that_expires(database_url: str) -> None:
    terms: dict[str, Any] = {"ticket_expires_in": 3600.0, "on_expiry": OnExpiry.CANCEL_RUN}
    async with stage(database_url, **terms) as there:
        run = await there.waiting()
        await there.house.database.pool.execute(
            "UPDATE tickets SET expires_at = now() - $1::interval", timedelta(seconds=1)
        )
        await expire_due(there.house.ctx, 10)
        await assert_ended(run)
        await called_once(there, run)
    assert await broken_invariants(database_url) == {}


async def test_a_cancel_while_the_agent_is_not_here(database_url: str) -> None:
    probe, witness = Probe(), watching(Phase.RUN_END)
    script = in_order(turn(WORDS, probe.call("c1"), probe.call("c2")))
    agent = hooked(probe, witness)
    async with replica(database_url, agent, script) as first:
        run = await first.start()
        await run.finished()
    async with replica(database_url, an_agent(), in_order()) as without:
        run = without.same(run)
        await run.decide_all(decision("perm_c1", "approve"), decision("perm_c2", "approve"))
        await run.finished(2)
        assert (await run.cancel()).is_settled
        await assert_ended(run)
        assert not await without.database.pool.fetchval(NO_ROW_LEFT)
        await without.take_nothing_new()
        await without.database.pool.execute("UPDATE failed_errands SET next_at = now()")
    assert witness.seen == []
    async with replica(database_url, agent, in_order()) as again:
        await called_once(Stage(again, witness, probe), again.same(run))
    assert await broken_invariants(database_url) == {}


async def test_a_cancel_while_background_tasks_are_at_work(database_url: str) -> None:
    probe = Probe(held=True)
    turns = turn(probe.call("c1")), turn("I'll wait.")
    more: dict[str, Any] = {"background": ["probe"], "approval": []}
    async with stage(database_url, *turns, probe=probe, **more) as there:
        run = await there.waiting()
        assert (await run.cancel()).is_settled
        said = await run.ended()
        assert said[-1]["result"]["response"] == "I'll wait."
        assert _last_shown(said) == "state_snapshot"
        await called_once(there, run)
    assert await broken_invariants(database_url) == {}


async def test_a_cancel_while_calls_are_held_by_a_limit(database_url: str) -> None:
    async with stage(database_url, approval=[]) as there:
        run = await there.waiting(limits={"tool_calls": 1}, on_limit=OnLimit.ASK)
        assert (await run.cancel()).is_settled
        said = await run.ended()
        done = of_type(said, "tool_call_done")
        outcomes = [(one["id"], one["outcome"]) for one in done]
        assert outcomes == [("c1", "succeeded"), ("c2", "suspended"), ("c2", "failed")]
        assert said[-1]["result"]["response"] == WORDS
        await called_once(there, run)
    assert await broken_invariants(database_url) == {}


async def test_a_cancel_at_a_limit_in_the_middle_of_a_step(database_url: str) -> None:
    """The calls have no question of their own, and their step isn't complete."""
    async with stage(database_url, probe=Probe(held=True), approval=[]) as there:
        run = await there.waiting(limits={"wall_seconds": 0.3}, on_limit=OnLimit.ASK)
        assert (await run.cancel()).is_settled
        await assert_ended(run)
        record = await run.now()
        steps = {entry.message.step_index for entry in await run.log() if entry.message.run_id}
        assert (record.steps, steps) == (0, {0})
        await called_once(there, run)
    assert await broken_invariants(database_url) == {}


async def test_a_child_whose_parent_was_cancelled(database_url: str) -> None:
    probe, witness = Probe(), watching(Phase.RUN_END)
    scout = Member(
        [turn(WORDS, probe.call("c1"))],
        tools=[probe.tool],
        more={"approval": ["probe"], "plugins": [witness.plugin]},
    )
    boss = Member([turn("I'll ask.", work_for("scout", id="b1"))], delegates=["scout"])
    catalog, script = family(boss=boss, scout=scout)
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        await run.finished()
        [child] = await family_of(run, 1)
        await child.finished()
        assert (await run.cancel()).is_settled
        await assert_ended(run, words="I'll ask.", calls=["b1"])
        await assert_ended(child, calls=["c1"])
        await called_once(Stage(house, witness, probe), child)
    assert await broken_invariants(database_url) == {}


async def test_a_limit_that_is_not_raised_ends_the_run_at_work(database_url: str) -> None:
    """No idle end: a worker takes the answer, and calls the hooks itself."""
    async with stage(database_url, approval=[]) as there:
        run = await there.waiting(limits={"tool_calls": 1}, on_limit=OnLimit.ASK)
        await run.decide("limit_tool_calls", "reject")
        said = await run.ended()
        state = (await run.now()).state
        assert isinstance(state, Done)
        assert isinstance(state.termination, Stopped)
        assert state.final_output == said[-1]["result"]["response"] == WORDS
        assert _last_shown(said) == "state_snapshot"
        await called_once(there, run)
    assert await broken_invariants(database_url) == {}


async def test_a_run_whose_worker_died_and_whose_agent_is_gone(database_url: str) -> None:
    """A worker without the agent ends it; the hooks are called by one that has the agent."""
    probe, witness, gate = Probe(), watching(Phase.RUN_END), Gate()
    agent = hooked(probe, witness)
    async with replica(database_url, agent, in_order(turn("Hel", gate))) as first:
        run = await first.start()
        await run.until("text_delta")
        await first.kill()
    async with replica(database_url, an_agent(), in_order(), slots=0) as bystander:
        assert not (await bystander.same(run).cancel()).is_settled
    async with replica(database_url, an_agent(), in_order()) as without:
        said = await without.same(run).ended()
        assert said[-1]["termination"]["type"] == "cancelled"
        await without.take_nothing_new()
        await without.database.pool.execute("UPDATE failed_errands SET next_at = now()")
    assert witness.seen == []
    async with replica(database_url, agent, in_order()) as again:
        await called_once(Stage(again, witness, probe), again.same(run))
    assert await broken_invariants(database_url) == {}


# --- the hooks --------------------------------------------------------------------------------------


async def pending(there: Stage) -> Run:
    """A run that was cancelled while it waited, whose follow-up no worker has taken."""
    run = await there.waiting()
    await there.house.take_nothing_new()
    await run.cancel()
    return run


def due(run: Run) -> CallRunEnd:
    return CallRunEnd(tenant=ANN.tenant, run_id=run.id)


async def test_the_hooks_see_the_run_as_it_ended(database_url: str) -> None:
    async with stage(database_url) as there:
        run = await pending(there)
        log = await run.log()
        await there.house.start("later", thread_id=run.thread_id, here=False)
        assert await run_followup(there.house.ctx, due(run)) is None
        [view] = there.witness.seen
        assert (view.phase, view.run_id, view.thread_id) == (Phase.RUN_END, run.id, run.thread_id)
        assert [entry.message.id for entry in view.log] == [entry.message.id for entry in log]
        assert (view.steps, view.agent.id) == (1, "tester")


async def test_hooks_are_called_once_however_often_the_follow_up_is_delivered(
    database_url: str,
) -> None:
    async with stage(database_url) as there:
        run = await pending(there)
        ctx = there.house.ctx
        await asyncio.gather(*(run_followup(ctx, due(run)) for _ in range(5)))
        assert await run_followup(ctx, due(run)) is None
        assert len(there.witness.seen) == 1


async def test_a_lost_follow_up_is_found_by_the_sweeper(database_url: str) -> None:
    async with stage(database_url) as there:
        run = await pending(there)
        await lose_errands(there.house)
        async with there.house.database.transaction() as connection:
            assert await run_ends.overdue(connection, grace=60, limit=10) == []
            assert await run_ends.overdue(connection, grace=0, limit=10) == [due(run)]
        await there.house.database.pool.execute(
            "UPDATE pending_run_ends SET created_at = now() - interval '1 hour'"
        )
        assert await there.house.sweeper.run_once() == 1
        assert not await there.house.database.pool.fetchval(NO_JOB_LEFT)


async def test_a_process_that_dies_over_a_hook_leaves_it_uncalled_by_others(
    database_url: str,
) -> None:
    """The claim was committed before the hook began."""
    seen: list[str] = []

    async def dies(view: HookView) -> Sequence[Request]:
        seen.append(view.run_id)
        raise asyncio.CancelledError

    probe, plugin = Probe(), Plugin(name="deadly", hooks={Phase.RUN_END: dies})
    agent = an_agent(probe.tool, approval=["probe"], plugins=[plugin])
    async with replica(database_url, agent, in_order(turn(probe.call("c1")))) as house:
        run = await house.start()
        await run.finished()
        await house.take_nothing_new()
        await run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run_followup(house.ctx, due(run))
        assert await run_followup(house.ctx, due(run)) is None
        assert await house.database.pool.fetchval(NO_ROW_LEFT)
        assert seen == [run.id]


async def test_a_hook_that_fails_changes_nothing_and_is_not_called_again(
    database_url: str,
) -> None:
    seen: list[str] = []

    async def fails(view: HookView) -> Sequence[Request]:
        seen.append(view.run_id)
        raise KeyError("planted")

    probe, plugin = Probe(), Plugin(name="failing", hooks={Phase.RUN_END: fails})
    agent = an_agent(probe.tool, approval=["probe"], plugins=[plugin])
    script = in_order(turn(WORDS, probe.call("c1")))
    async with replica(database_url, agent, script) as house:
        run = await house.start()
        await run.finished()
        await house.take_nothing_new()
        await run.cancel()
        before = await run.now(), await run.ended()
        for _ in range(2):
            assert await run_followup(house.ctx, due(run)) is None
        assert (await run.now(), await run.ended()) == before
        assert seen == [run.id]
        assert await house.database.pool.fetchval("SELECT count(*) FROM failed_errands") == 0


OF_RUN: StateKey[str, str] = StateKey("of_run", str)
OF_THREAD: StateKey[str, str] = StateKey("of_thread", str, scope=StateScope.THREAD)


@pytest.mark.parametrize("goes_on", [False, True])
async def test_what_hooks_change_is_kept_unless_a_later_run_has_the_thread(
    database_url: str, goes_on: bool
) -> None:
    async def change(_: HookView) -> Sequence[Request]:
        return [Change(OF_RUN, "cleaned"), Change(OF_THREAD, "cleaned")]

    plugin = Plugin(name="cleaner", keys=[OF_RUN, OF_THREAD], hooks={Phase.RUN_END: change})
    probe = Probe()
    agent = an_agent(probe.tool, approval=["probe"], plugins=[plugin])
    async with replica(database_url, agent, in_order(turn(probe.call("c1")))) as house:
        run = await house.start()
        await run.finished()
        await house.take_nothing_new()
        await run.cancel()
        if goes_on:
            await house.start("later", thread_id=run.thread_id, here=False)
        assert await run_followup(house.ctx, due(run)) is None
        state = (await run.now()).run_state
        assert state is not None
        assert state["extensions"]["of_run"] == "cleaned"
        assert state["extensions"][LIFECYCLE]["status"] == "done"
        async with house.database.reading() as connection:
            remembered = await threads.state(connection, ANN.tenant, run.thread_id)
        assert remembered.get("of_thread") == (None if goes_on else "cleaned")


async def test_hooks_whose_agent_is_not_to_be_had_are_given_up_after_many_tries(
    database_url: str,
) -> None:
    async with stage(database_url) as there:
        run = await pending(there)
    async with replica(database_url, an_agent(), in_order()) as without:
        await without.take_nothing_new()
        assert await run_followup(without.ctx, due(run)) == RetryAfter(1.0)
        await without.database.pool.execute(
            "UPDATE failed_errands SET tries = $1, next_at = now()", MAX_TRIES - 1
        )
        async with without.database.reading() as connection:
            assert await run_ends.overdue(connection, grace=0, limit=10) == [due(run)]
        assert await run_followup(without.ctx, due(run)) is None
        assert await without.database.pool.fetchval(NO_ROW_LEFT)
        found = await explain(without.ctx, ANN, run.id)
        [said] = [each for each in found.reasons if each.code is ReasonCode.ERRAND_GIVEN_UP]
        assert "run_end hooks" in said.text
    assert there.witness.seen == []


async def test_an_agent_without_such_hooks_leaves_nothing_behind(database_url: str) -> None:
    probe = Probe()
    agent = an_agent(probe.tool, approval=["probe"])
    async with replica(database_url, agent, in_order(turn(probe.call("c1")))) as house:
        run = await house.start()
        await run.finished()
        await run.cancel()
        await eventually(lambda: house.database.pool.fetchval(NO_ROW_LEFT))
        await eventually(lambda: house.database.pool.fetchval(NO_JOB_LEFT))


# --- remote agents ----------------------------------------------------------------------------------


async def test_a_remote_run_that_is_cancelled_while_it_waits_is_labelled_cancelled(
    database_url: str,
) -> None:
    echo = Echo()
    async with replica(database_url, echo.catalog, in_order(), backends=echo.backends) as house:
        run = await house.start("ask which one?")
        await run.finished()
        before = (await run.now()).run_state
        assert (await run.cancel()).is_settled
        await assert_remote_end(run, words="which one?")
        after = (await run.now()).run_state
        assert before is not None
        assert after is not None
        for kept in (REMOTE, OUTPUT_KEY):
            assert after["extensions"][kept] == before["extensions"][kept]
        await eventually(lambda: _aborted(echo))
        assert await house.database.pool.fetchval(NO_ROW_LEFT)
    assert await broken_invariants(database_url) == {}


async def test_a_remote_run_that_is_cancelled_before_it_begins_is_labelled_cancelled(
    database_url: str,
) -> None:
    echo = Echo()
    async with replica(
        database_url, echo.catalog, in_order(), backends=echo.backends, slots=0
    ) as house:
        run = await house.start("say hello", here=False)
        assert (await run.cancel()).is_settled
        await assert_remote_end(run, words="")
    assert (echo.turns, echo.aborts) == ([], [])


async def test_a_remote_run_that_is_cancelled_at_work_has_the_same_shape(database_url: str) -> None:
    echo = Echo()
    async with replica(database_url, echo.catalog, in_order(), backends=echo.backends) as house:
        run = await house.start("ask which one?")
        await run.finished()
        [ticket] = await run.tickets()
        await house.database.pool.execute(
            "UPDATE runs SET cancel_requested_at = now() WHERE id = $1", run.id
        )
        await run.decide(ticket.name, "respond", result="the red one")
        await assert_remote_end(run, words="which one?")


async def test_a_remote_run_whose_agent_and_worker_are_gone_has_the_same_shape(
    database_url: str,
) -> None:
    echo = Echo()
    async with replica(database_url, echo.catalog, in_order(), backends=echo.backends) as house:
        run = await house.start("hang")
        await asyncio.wait_for(echo.hanging.wait(), 15)
        await run.until("text_delta")
        await house.kill()
    async with replica(database_url, an_agent(), in_order(), slots=0) as bystander:
        assert not (await bystander.same(run).cancel()).is_settled
    async with replica(database_url, an_agent(), in_order()) as without:
        await assert_remote_end(without.same(run), words="")
    assert await broken_invariants(database_url) == {}


async def assert_remote_end(run: Run, *, words: str) -> None:
    said = await run.ended()
    state = (await run.now()).state
    assert isinstance(state, Done)
    assert isinstance(state.termination, Cancelled)
    assert said[-1]["result"] == {
        "response": words,
        "status": "cancelled",
        "status_reason": "cancelled",
    }
    assert state.final_output == (words or None)
    assert _last_shown(said) == "state_snapshot"


async def _aborted(echo: Echo) -> bool:
    return len(echo.aborts) == 1
