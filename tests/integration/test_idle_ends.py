"""Runs that end while no worker executes them end like executing ones, and their hooks are called once."""

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
from app.queries.explain import explain
from app.queries.explain_reasons import ReasonCode
from app.runtime.plugins import HookView, Phase, Plugin, Request
from app.runtime.state import Change, StateKey, StateScope
from app.storage.queue import run_ends
from app.storage.threads import threads
from tests.support.conditions import eventually
from tests.support.echo_backend import Echo
from tests.support.hooks import Hooks, watching
from tests.support.invariants import broken_invariants
from tests.support.probes import Probe
from tests.support.replicas import (
    ANN,
    Event,
    Replica,
    Run,
    an_agent,
    decision,
    of_type,
    open_replica,
)
from tests.support.run_trees import (
    ScriptedAgent,
    agents_with_delegates,
    family_of,
    lose_followups,
    work_for,
)

pytestmark = pytest.mark.anyio

NO_ROW_LEFT = "SELECT NOT EXISTS (SELECT FROM pending_run_ends)"
NO_JOB_LEFT = "SELECT NOT EXISTS (SELECT FROM pgq.pgqueuer WHERE entrypoint = 'followup')"
WORDS = "Let me see."


@dataclass
class WatchedReplica:
    """One replica with an agent whose `run_end` hook is watched."""

    replica: Replica
    witness: Hooks
    probe: Probe

    async def waiting(self, **more: Any) -> Run:
        run = await self.replica.start(**more)
        await run.finished()
        assert (await run.now()).status is RunStatus.WAITING
        return run


def hooked(probe: Probe, witness: Hooks, **more: Any) -> Catalog:
    return an_agent(probe.tool, plugins=[witness.plugin], **{"approval": ["probe"], **more})


@asynccontextmanager
async def watched_replica(
    url: str, *turns: ScriptedTurn, slots: int = 10, probe: Probe | None = None, **more: Any
) -> AsyncIterator[WatchedReplica]:
    probe, witness = probe or Probe(), watching(Phase.RUN_END)
    script = in_order(*(turns or (turn(WORDS, probe.call("c1"), probe.call("c2")),)))
    async with open_replica(url, hooked(probe, witness, **more), script, slots=slots) as replica:
        yield WatchedReplica(replica, witness, probe)


async def assert_hook_called_once(watched: WatchedReplica, run: Run) -> None:
    """The follow-up is done, and it has called the hook for the run."""
    await eventually(lambda: watched.replica.database.pool.fetchval(NO_ROW_LEFT))
    await eventually(lambda: watched.replica.database.pool.fetchval(NO_JOB_LEFT))
    assert [view.run.id for view in watched.witness.seen].count(run.id) == 1


async def assert_ended(
    run: Run, *, words: str = WORDS, calls: Sequence[str] = ("c1", "c2")
) -> None:
    """The events, the record and the state of a cancelled run."""
    emitted = await run.ended()
    record = await run.now()
    assert isinstance(record.state, Done)
    assert isinstance(record.state.termination, Cancelled)
    assert record.state.final_output == (words or None)
    assert emitted[-1]["event_type"] == "run_finish"
    assert emitted[-1]["result"] == {"response": words}
    assert _last_shown(emitted) == "state_snapshot"
    shown = of_type(emitted, "state_snapshot")[-1]["snapshot"]["extensions"][LIFECYCLE]
    assert (shown["status"], shown["status_reason"]) == ("done", "cancelled")
    assert record.run_state is not None
    assert record.run_state["extensions"][LIFECYCLE] == shown
    finished_calls = [
        one for one in of_type(emitted, "tool_call_done") if one["result"]["status"] == "done"
    ]
    assert [one["tool_call_id"] for one in finished_calls] == list(calls)
    assert {one["result"]["text"] for one in finished_calls} <= {INTERRUPTED}


def _last_shown(emitted: Sequence[Event]) -> str:
    kinds = [event["event_type"] for event in emitted if event["event_type"] != "rolled_back"]
    last: str = kinds[-2]
    return last


# --- each way to end ------------------------------------------------------------------------------


async def test_cancel_while_the_run_waits_for_decisions(database_url: str) -> None:
    async with watched_replica(database_url) as watched:
        run = await watched.waiting()
        assert (await run.cancel()).is_done
        await assert_ended(run)
        await assert_hook_called_once(watched, run)
    assert await broken_invariants(database_url) == {}


async def test_cancel_between_a_decision_and_the_claim_that_would_apply_it(
    database_url: str,
) -> None:
    async with watched_replica(database_url) as watched:
        run = await watched.waiting()
        await watched.replica.take_nothing_new()
        await watched.replica.worker.stop(grace=0)
        await run.decide("perm_c1", "approve")
        await run.cancel()
        await assert_ended(run)
        assert watched.probe.handed == []
    assert await broken_invariants(database_url) == {}


async def test_cancel_before_a_worker_has_claimed_the_run(database_url: str) -> None:
    async with watched_replica(database_url, slots=0) as watched:
        run = await watched.replica.start(here=False)
        assert (await run.cancel()).is_done
        await assert_ended(run, words="", calls=())
        await assert_hook_called_once(watched, run)
    assert await broken_invariants(database_url) == {}


async def test_cancel_while_the_run_is_queued(database_url: str) -> None:
    async with watched_replica(database_url) as watched:
        first = await watched.waiting()
        run = await watched.replica.start("behind", thread_id=first.thread_id)
        assert (await run.cancel()).is_done
        await assert_ended(run, words="", calls=())
        await assert_hook_called_once(watched, run)
        assert (await first.now()).status is RunStatus.WAITING
    assert await broken_invariants(database_url) == {}


async def test_cancel_of_the_whole_thread(database_url: str) -> None:
    async with watched_replica(database_url) as watched:
        first = await watched.waiting()
        behind = await watched.replica.start("behind", thread_id=first.thread_id)
        answer = await cancel_thread(watched.replica.ctx, ANN, first.thread_id, reason=None)
        assert answer.is_settled
        await assert_ended(first)
        await assert_ended(behind, words="", calls=())
        await assert_hook_called_once(watched, first)
        await assert_hook_called_once(watched, behind)
    assert await broken_invariants(database_url) == {}


@pytest.mark.parametrize("on_active", [OnActive.INTERRUPT, OnActive.ROLLBACK])
async def test_an_interrupt_or_rollback_by_another_run(
    database_url: str, on_active: OnActive
) -> None:
    probe = Probe()
    turns = turn(WORDS, probe.call("c1"), probe.call("c2")), turn("Right away.")
    async with watched_replica(database_url, *turns, probe=probe) as watched:
        run = await watched.waiting()
        replacement = await watched.replica.start(
            "no", thread_id=run.thread_id, on_active=on_active
        )
        await assert_ended(run)
        await replacement.ended()
        await assert_hook_called_once(watched, run)
        [view] = [view for view in watched.witness.seen if view.run.id == run.id]
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


async def test_a_ticket_whose_expiry_cancels_the_run(database_url: str) -> None:
    terms: dict[str, Any] = {"ticket_expires_in": 3600.0, "on_expiry": OnExpiry.CANCEL_RUN}
    async with watched_replica(database_url, **terms) as watched:
        run = await watched.waiting()
        await watched.replica.database.pool.execute(
            "UPDATE tickets SET expires_at = now() - $1::interval", timedelta(seconds=1)
        )
        await expire_due(watched.replica.ctx, 10)
        await assert_ended(run)
        await assert_hook_called_once(watched, run)
    assert await broken_invariants(database_url) == {}


async def test_cancel_while_the_agent_version_is_missing(database_url: str) -> None:
    probe, witness = Probe(), watching(Phase.RUN_END)
    script = in_order(turn(WORDS, probe.call("c1"), probe.call("c2")))
    agent = hooked(probe, witness)
    async with open_replica(database_url, agent, script) as first:
        run = await first.start()
        await run.finished()
    async with open_replica(database_url, an_agent(), in_order()) as without_agent:
        run = without_agent.same(run)
        await run.decide_all(decision("perm_c1", "approve"), decision("perm_c2", "approve"))
        await run.finished(2)
        assert (await run.cancel()).is_done
        await assert_ended(run)
        assert not await without_agent.database.pool.fetchval(NO_ROW_LEFT)
        await without_agent.take_nothing_new()
        await without_agent.database.pool.execute("UPDATE failed_followups SET next_at = now()")
    assert witness.seen == []
    async with open_replica(database_url, agent, in_order()) as again:
        await assert_hook_called_once(WatchedReplica(again, witness, probe), again.same(run))
    assert await broken_invariants(database_url) == {}


async def test_cancel_while_background_tasks_execute(database_url: str) -> None:
    probe = Probe(held=True)
    turns = turn(probe.call("c1")), turn("I'll wait.")
    more: dict[str, Any] = {"background": ["probe"], "approval": []}
    async with watched_replica(database_url, *turns, probe=probe, **more) as watched:
        run = await watched.waiting()
        assert (await run.cancel()).is_done
        emitted = await run.ended()
        assert emitted[-1]["result"]["response"] == "I'll wait."
        assert _last_shown(emitted) == "state_snapshot"
        await assert_hook_called_once(watched, run)
    assert await broken_invariants(database_url) == {}


async def test_cancel_while_a_limit_holds_the_calls(database_url: str) -> None:
    async with watched_replica(database_url, approval=[]) as watched:
        run = await watched.waiting(limits={"tool_calls": 1}, on_limit=OnLimit.ASK)
        assert (await run.cancel()).is_done
        emitted = await run.ended()
        done = of_type(emitted, "tool_call_done")
        outcomes = [(one["tool_call_id"], one["result"].get("outcome")) for one in done]
        assert outcomes == [("c1", "succeeded"), ("c2", None), ("c2", "failed")]
        assert emitted[-1]["result"]["response"] == WORDS
        await assert_hook_called_once(watched, run)
    assert await broken_invariants(database_url) == {}


async def test_cancel_at_a_limit_in_the_middle_of_a_step(database_url: str) -> None:
    """The calls have no tickets of their own, and their step isn't complete."""
    async with watched_replica(database_url, probe=Probe(held=True), approval=[]) as watched:
        run = await watched.waiting(limits={"wall_seconds": 0.3}, on_limit=OnLimit.ASK)
        assert (await run.cancel()).is_done
        await assert_ended(run)
        record = await run.now()
        steps = {entry.message.step_index for entry in await run.log() if entry.message.run_id}
        assert (record.steps, steps) == (0, {0})
        await assert_hook_called_once(watched, run)
    assert await broken_invariants(database_url) == {}


async def test_a_child_whose_parent_was_cancelled(database_url: str) -> None:
    probe, witness = Probe(), watching(Phase.RUN_END)
    scout = ScriptedAgent(
        [turn(WORDS, probe.call("c1"))],
        tools=[probe.tool],
        more={"approval": ["probe"], "plugins": [witness.plugin]},
    )
    boss = ScriptedAgent([turn("I'll ask.", work_for("scout", id="b1"))], delegates=["scout"])
    catalog, script = agents_with_delegates(boss=boss, scout=scout)
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.finished()
        [child] = await family_of(run, 1)
        await child.finished()
        assert (await run.cancel()).is_done
        await assert_ended(run, words="I'll ask.", calls=["b1"])
        await assert_ended(child, calls=["c1"])
        await assert_hook_called_once(WatchedReplica(replica, witness, probe), child)
    assert await broken_invariants(database_url) == {}


async def test_a_limit_that_is_not_raised_ends_the_run_while_it_executes(database_url: str) -> None:
    """Not an idle end: a worker claims the run for the decision and calls the hooks itself."""
    async with watched_replica(database_url, approval=[]) as watched:
        run = await watched.waiting(limits={"tool_calls": 1}, on_limit=OnLimit.ASK)
        await run.decide("limit_tool_calls", "reject")
        emitted = await run.ended()
        state = (await run.now()).state
        assert isinstance(state, Done)
        assert isinstance(state.termination, Stopped)
        assert state.final_output == emitted[-1]["result"]["response"] == WORDS
        assert _last_shown(emitted) == "state_snapshot"
        await assert_hook_called_once(watched, run)
    assert await broken_invariants(database_url) == {}


async def test_a_run_whose_worker_died_and_whose_agent_was_removed(database_url: str) -> None:
    """A worker without the agent ends the run. A worker with the agent calls the hooks."""
    probe, witness, gate = Probe(), watching(Phase.RUN_END), Gate()
    agent = hooked(probe, witness)
    async with open_replica(database_url, agent, in_order(turn("Hel", gate))) as first:
        run = await first.start()
        await run.until("text_delta")
        await first.kill()
    async with open_replica(database_url, an_agent(), in_order(), slots=0) as other:
        assert not (await other.same(run).cancel()).is_done
    async with open_replica(database_url, an_agent(), in_order()) as without_agent:
        emitted = await without_agent.same(run).ended()
        assert emitted[-1]["termination"]["type"] == "cancelled"
        await without_agent.take_nothing_new()
        await without_agent.database.pool.execute("UPDATE failed_followups SET next_at = now()")
    assert witness.seen == []
    async with open_replica(database_url, agent, in_order()) as again:
        await assert_hook_called_once(WatchedReplica(again, witness, probe), again.same(run))
    assert await broken_invariants(database_url) == {}


# --- the hooks ------------------------------------------------------------------------------------


async def pending(watched: WatchedReplica) -> Run:
    """A run that was cancelled while it waited, with its follow-up still queued."""
    run = await watched.waiting()
    await watched.replica.take_nothing_new()
    await run.cancel()
    return run


def due(run: Run) -> CallRunEnd:
    return CallRunEnd(tenant=ANN.tenant, run_id=run.id)


async def test_the_hooks_see_the_run_as_it_ended(database_url: str) -> None:
    async with watched_replica(database_url) as watched:
        run = await pending(watched)
        log = await run.log()
        await watched.replica.start("later", thread_id=run.thread_id, here=False)
        assert await run_followup(watched.replica.ctx, due(run)) is None
        [view] = watched.witness.seen
        assert (view.phase, view.run.id, view.run.thread_id) == (
            Phase.RUN_END,
            run.id,
            run.thread_id,
        )
        assert [entry.message.id for entry in view.log] == [entry.message.id for entry in log]
        assert (view.steps, view.agent.id) == (1, "tester")


async def test_hooks_are_called_once_however_often_the_follow_up_is_delivered(
    database_url: str,
) -> None:
    async with watched_replica(database_url) as watched:
        run = await pending(watched)
        ctx = watched.replica.ctx
        await asyncio.gather(*(run_followup(ctx, due(run)) for _ in range(5)))
        assert await run_followup(ctx, due(run)) is None
        assert len(watched.witness.seen) == 1


async def test_a_lost_follow_up_is_found_by_the_sweeper(database_url: str) -> None:
    async with watched_replica(database_url) as watched:
        run = await pending(watched)
        await lose_followups(watched.replica)
        async with watched.replica.database.transaction() as connection:
            assert await run_ends.overdue(connection, grace=60, limit=10) == []
            assert await run_ends.overdue(connection, grace=0, limit=10) == [due(run)]
        await watched.replica.database.pool.execute(
            "UPDATE pending_run_ends SET created_at = now() - interval '1 hour'"
        )
        assert await watched.replica.sweeper.run_once() == 1
        assert not await watched.replica.database.pool.fetchval(NO_JOB_LEFT)


OF_RUN: StateKey[str, str] = StateKey("of_run", str)
OF_THREAD: StateKey[str, str] = StateKey("of_thread", str, scope=StateScope.THREAD)

CLAIM_ENDS = "UPDATE pending_run_ends SET claimed_until = now() - interval '1 second'"


async def test_hooks_whose_process_died_are_called_again_after_its_claim(
    database_url: str,
) -> None:
    seen: list[str] = []

    async def crashes(view: HookView) -> Sequence[Request]:
        seen.append(view.run.id)
        if len(seen) == 1:
            raise asyncio.CancelledError
        return [Change(OF_RUN, "cleaned")]

    probe, plugin = (
        Probe(),
        Plugin(name="deadly", keys=[OF_RUN], hooks={Phase.RUN_END: crashes}),
    )
    agent = an_agent(probe.tool, approval=["probe"], plugins=[plugin])
    async with open_replica(database_url, agent, in_order(turn(probe.call("c1")))) as replica:
        run = await replica.start()
        await run.finished()
        await replica.take_nothing_new()
        await run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run_followup(replica.ctx, due(run))
        async with replica.database.reading() as connection:
            assert await run_ends.overdue(connection, grace=0, limit=10) == []
        assert isinstance(await run_followup(replica.ctx, due(run)), RetryAfter)
        assert seen == [run.id]
        await replica.database.pool.execute(CLAIM_ENDS)
        async with replica.database.reading() as connection:
            assert await run_ends.overdue(connection, grace=0, limit=10) == [due(run)]
        assert await run_followup(replica.ctx, due(run)) is None
        assert await replica.database.pool.fetchval(NO_ROW_LEFT)
        assert seen == [run.id, run.id]
        state = (await run.now()).run_state
        assert state is not None
        assert state["extensions"][OF_RUN.name] == "cleaned"


async def test_a_worker_whose_claim_has_ended_saves_nothing(database_url: str) -> None:
    called, may_return = asyncio.Event(), asyncio.Event()
    texts = iter(["of the first", "of the second"])

    async def slow(_: HookView) -> Sequence[Request]:
        text = next(texts)
        if text == "of the first":
            called.set()
            await may_return.wait()
        return [Change(OF_RUN, text)]

    probe, plugin = Probe(), Plugin(name="slow", keys=[OF_RUN], hooks={Phase.RUN_END: slow})
    agent = an_agent(probe.tool, approval=["probe"], plugins=[plugin])
    async with open_replica(database_url, agent, in_order(turn(probe.call("c1")))) as replica:
        run = await replica.start()
        await run.finished()
        await replica.take_nothing_new()
        await run.cancel()
        async with asyncio.TaskGroup() as group:
            first = group.create_task(run_followup(replica.ctx, due(run)))
            await called.wait()
            await replica.database.pool.execute(CLAIM_ENDS)
            assert await run_followup(replica.ctx, due(run)) is None
            may_return.set()
            assert await first is None
        state = (await run.now()).run_state
        assert state is not None
        assert state["extensions"][OF_RUN.name] == "of the second"


async def test_a_hook_that_fails_changes_nothing_and_is_not_called_again(
    database_url: str,
) -> None:
    seen: list[str] = []

    async def fails(view: HookView) -> Sequence[Request]:
        seen.append(view.run.id)
        raise KeyError("planted")

    probe, plugin = Probe(), Plugin(name="failing", hooks={Phase.RUN_END: fails})
    agent = an_agent(probe.tool, approval=["probe"], plugins=[plugin])
    script = in_order(turn(WORDS, probe.call("c1")))
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        await replica.take_nothing_new()
        await run.cancel()
        before = await run.now(), await run.ended()
        for _ in range(2):
            assert await run_followup(replica.ctx, due(run)) is None
        assert (await run.now(), await run.ended()) == before
        assert seen == [run.id]
        assert await replica.database.pool.fetchval("SELECT count(*) FROM failed_followups") == 0


@pytest.mark.parametrize("continues", [False, True])
async def test_state_changes_of_hooks_are_stored_unless_a_later_run_has_the_thread(
    database_url: str, continues: bool
) -> None:
    async def change(_: HookView) -> Sequence[Request]:
        return [Change(OF_RUN, "cleaned"), Change(OF_THREAD, "cleaned")]

    plugin = Plugin(name="cleaner", keys=[OF_RUN, OF_THREAD], hooks={Phase.RUN_END: change})
    probe = Probe()
    agent = an_agent(probe.tool, approval=["probe"], plugins=[plugin])
    async with open_replica(database_url, agent, in_order(turn(probe.call("c1")))) as replica:
        run = await replica.start()
        await run.finished()
        await replica.take_nothing_new()
        await run.cancel()
        if continues:
            await replica.start("later", thread_id=run.thread_id, here=False)
        assert await run_followup(replica.ctx, due(run)) is None
        state = (await run.now()).run_state
        assert state is not None
        assert state["extensions"]["of_run"] == "cleaned"
        assert state["extensions"][LIFECYCLE]["status"] == "done"
        async with replica.database.reading() as connection:
            stored_keys = await threads.state(connection, ANN.tenant, run.thread_id)
        assert stored_keys.get("of_thread") == (None if continues else "cleaned")


async def test_hooks_of_a_missing_agent_are_given_up_after_many_tries(
    database_url: str,
) -> None:
    async with watched_replica(database_url) as watched:
        run = await pending(watched)
    async with open_replica(database_url, an_agent(), in_order()) as without_agent:
        await without_agent.take_nothing_new()
        assert await run_followup(without_agent.ctx, due(run)) == RetryAfter(1.0)
        await without_agent.database.pool.execute(
            "UPDATE failed_followups SET tries = $1, next_at = now()", MAX_TRIES - 1
        )
        async with without_agent.database.reading() as connection:
            assert await run_ends.overdue(connection, grace=0, limit=10) == [due(run)]
        assert await run_followup(without_agent.ctx, due(run)) is None
        assert await without_agent.database.pool.fetchval(NO_ROW_LEFT)
        found = await explain(without_agent.ctx, ANN, run.id)
        [given_up] = [each for each in found.reasons if each.code is ReasonCode.FOLLOWUP_GIVEN_UP]
        assert "run_end hooks" in given_up.text
    assert watched.witness.seen == []


async def test_an_agent_without_run_end_hooks_leaves_no_row_and_no_job(database_url: str) -> None:
    probe = Probe()
    agent = an_agent(probe.tool, approval=["probe"])
    async with open_replica(database_url, agent, in_order(turn(probe.call("c1")))) as replica:
        run = await replica.start()
        await run.finished()
        await run.cancel()
        await eventually(lambda: replica.database.pool.fetchval(NO_ROW_LEFT))
        await eventually(lambda: replica.database.pool.fetchval(NO_JOB_LEFT))


# --- remote agents --------------------------------------------------------------------------------


async def test_a_remote_run_that_is_cancelled_while_it_waits_is_labelled_cancelled(
    database_url: str,
) -> None:
    echo = Echo()
    async with open_replica(
        database_url, echo.catalog, in_order(), backends=echo.backends
    ) as replica:
        run = await replica.start("ask which one?")
        await run.finished()
        before = (await run.now()).run_state
        assert (await run.cancel()).is_done
        await assert_remote_end(run, words="which one?")
        after = (await run.now()).run_state
        assert before is not None
        assert after is not None
        for stored_one in (REMOTE, OUTPUT_KEY):
            assert after["extensions"][stored_one] == before["extensions"][stored_one]
        await eventually(lambda: _aborted(echo))
        assert await replica.database.pool.fetchval(NO_ROW_LEFT)
    assert await broken_invariants(database_url) == {}


async def test_a_remote_run_that_is_cancelled_before_it_begins_is_labelled_cancelled(
    database_url: str,
) -> None:
    echo = Echo()
    async with open_replica(
        database_url, echo.catalog, in_order(), backends=echo.backends, slots=0
    ) as replica:
        run = await replica.start("say hello", here=False)
        assert (await run.cancel()).is_done
        await assert_remote_end(run, words="")
    assert (echo.turns, echo.aborts) == ([], [])


async def test_a_remote_run_that_is_cancelled_while_executing_has_the_same_end(
    database_url: str,
) -> None:
    echo = Echo()
    async with open_replica(
        database_url, echo.catalog, in_order(), backends=echo.backends
    ) as replica:
        run = await replica.start("ask which one?")
        await run.finished()
        [ticket] = await run.tickets()
        await replica.database.pool.execute(
            "UPDATE runs SET cancel_requested_at = now() WHERE id = $1", run.id
        )
        await run.decide(ticket.name, "respond", result="the red one")
        await assert_remote_end(run, words="which one?")


async def test_a_remote_run_without_its_agent_and_its_worker_has_the_same_end(
    database_url: str,
) -> None:
    echo = Echo()
    async with open_replica(
        database_url, echo.catalog, in_order(), backends=echo.backends
    ) as replica:
        run = await replica.start("hang")
        await asyncio.wait_for(echo.hanging.wait(), 15)
        await run.until("text_delta")
        await replica.kill()
    async with open_replica(database_url, an_agent(), in_order(), slots=0) as other:
        assert not (await other.same(run).cancel()).is_done
    async with open_replica(database_url, an_agent(), in_order()) as without_agent:
        await assert_remote_end(without_agent.same(run), words="")
    assert await broken_invariants(database_url) == {}


async def assert_remote_end(run: Run, *, words: str) -> None:
    emitted = await run.ended()
    state = (await run.now()).state
    assert isinstance(state, Done)
    assert isinstance(state.termination, Cancelled)
    assert emitted[-1]["result"] == {"response": words}
    assert state.final_output == (words or None)
    assert _last_shown(emitted) == "state_snapshot"


async def _aborted(echo: Echo) -> bool:
    return len(echo.aborts) == 1
