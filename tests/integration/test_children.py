"""Agents as tools: a child is a run of its own, its parent waits without a worker, and a cancel ends both."""

import pytest

from app.api.schemas.runs.run import run_out
from app.clock import new_id
from app.commands.followups.child_runs import run_child_followup
from app.domain.agents.specs import Delegation
from app.domain.children.followups import ChildFollowup, FollowupKind
from app.domain.errors import Invalid
from app.domain.events.tool_call_events import ActivitySnapshot
from app.domain.ids import RunId
from app.domain.runs.runs import Done, RunStatus, Waiting, WaitingReason
from app.domain.runs.terminations import Cancelled, NaturalEnd
from app.domain.slices import PageRequest
from app.domain.tickets.tickets import TicketFilter, TicketKind
from app.llm.scripted.model import Gate, turn
from app.queries import inbox, records
from app.queries.explain import explain
from app.queries.explain_reasons import ReasonCode
from app.storage.queue import deliveries
from tests.support.conditions import eventually
from tests.support.probes import Probe
from tests.support.replicas import ANN, of_type, open_replica, texts_of
from tests.support.run_trees import (
    ScriptedAgent,
    agents_with_delegates,
    cautious,
    children_of,
    family_of,
    lose_followups,
    opened_below,
    overdue,
    records_below,
    until_children_are_deleted,
    work_for,
)

pytestmark = pytest.mark.anyio

LEAD = ScriptedAgent([turn(work_for("scout")), turn("It is blue.")], delegates=["scout"])


async def test_the_answer_of_a_child_is_the_result_of_the_call(database_url: str) -> None:
    catalog, script = agents_with_delegates(boss=LEAD, scout=ScriptedAgent([turn("Blue.")]))
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start("what colour?")
        emitted = await run.ended()
        assert emitted[-1]["result"]["response"] == "It is blue."
        [child] = await children_of(run)
        lineage = (await child.now()).lineage
        assert (lineage.parent_run_id, lineage.root_run_id, lineage.depth) == (run.id, run.id, 1)
        assert texts_of(await child.log()) == [("user", "look it up"), ("assistant", "Blue.")]
        result = of_type(emitted, "tool_call_resumed")[0]["result"]["data"]
        assert result["response"] == "Blue."
        assert result["outcome"] == "succeeded"


async def test_a_parent_holds_no_worker_while_its_child_executes(database_url: str) -> None:
    gate = Gate()
    catalog, script = agents_with_delegates(boss=LEAD, scout=ScriptedAgent([turn(gate, "Blue.")]))
    async with open_replica(database_url, catalog, script, slots=1) as replica:
        run = await replica.start()
        await gate.reached.wait()
        state = (await run.now()).state
        assert isinstance(state, Waiting)
        assert state.reason is WaitingReason.CHILD_RUNS
        gate.open.set()
        await run.ended()


async def test_a_parents_stream_shows_the_activity_of_its_child(database_url: str) -> None:
    catalog, script = agents_with_delegates(boss=LEAD, scout=ScriptedAgent([turn("Blue.")]))
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        emitted = await run.ended()
        shown = [
            event["content"]
            for event in of_type(emitted, ActivitySnapshot.event_type)
            if event["activity_type"] == "tool-call-progress"
        ]
        assert [each["status"] for each in shown] == ["running", "done"]
        [child] = await children_of(run)
        assert {each["child_run_id"] for each in shown} == {child.id}


async def test_children_execute_concurrently(database_url: str) -> None:
    gates = Gate(), Gate()
    catalog, script = agents_with_delegates(
        boss=ScriptedAgent(
            [turn(work_for("scout", id="c1"), work_for("clerk", id="c2")), turn("Both agree.")],
            delegates=["scout", "clerk"],
        ),
        scout=ScriptedAgent([turn(gates[0], "Blue.")]),
        clerk=ScriptedAgent([turn(gates[1], "Blue, too.")]),
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        for gate in gates:
            await gate.reached.wait()
        for gate in gates:
            gate.open.set()
        emitted = await run.ended()
        assert emitted[-1]["result"]["response"] == "Both agree."
        answers = {
            event["tool_call_id"]: event["result"]["data"]["response"]
            for event in of_type(emitted, "tool_call_resumed")
        }
        assert answers == {"c1": "Blue.", "c2": "Blue, too."}


async def test_cancelling_a_run_cancels_its_whole_tree(database_url: str) -> None:
    gate = Gate()
    catalog, script = agents_with_delegates(
        boss=LEAD,
        scout=ScriptedAgent([turn(work_for("digger"))], delegates=["digger"]),
        digger=ScriptedAgent([turn(gate, "Never.")]),
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await gate.reached.wait()
        await run.cancel("enough")

        async def all_done() -> bool:
            tree = [await run.now(), *await records_below(replica, run)]
            return len(tree) == 3 and all(record.is_done for record in tree)

        await eventually(all_done)
        for record in await records_below(replica, run):
            assert isinstance(record.state, Done)
            assert isinstance(record.state.termination, Cancelled)


async def test_a_childs_ticket_is_in_the_inbox_and_its_parent_continues_after_the_decision(
    database_url: str,
) -> None:
    probe = Probe()
    catalog, script = agents_with_delegates(
        boss=LEAD,
        scout=cautious(probe, turn("Blue.")),
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        [child] = await family_of(run, 1)
        await child.finished()
        [waiting_reasons] = await child.tickets()
        assert waiting_reasons.kind is TicketKind.APPROVAL
        shown = of_type(await run.until("activity_snapshot", 2), "activity_snapshot")
        assert shown[-1]["content"]["status"] == "waiting"
        await child.decide(waiting_reasons.name, "approve")
        emitted = await run.ended()
        assert emitted[-1]["result"]["response"] == "It is blue."


async def test_a_failed_child_is_an_error_result_for_the_model(database_url: str) -> None:
    catalog, script = agents_with_delegates(boss=LEAD, scout=ScriptedAgent([]))
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.ended()
        results = [entry.message for entry in await run.log() if entry.message.tool_call_id]
        assert "failed" in results[-1].text


async def test_an_agent_cannot_delegate_to_one_of_its_ancestors(database_url: str) -> None:
    catalog, script = agents_with_delegates(
        boss=LEAD,
        scout=ScriptedAgent([turn(work_for("boss")), turn("Blue.")], delegates=["boss"]),
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        emitted = await run.ended()
        assert emitted[-1]["result"]["response"] == "It is blue."
        assert len(await records_below(replica, run)) == 1
        [child] = await children_of(run)
        refusal = [entry.message for entry in await child.log() if entry.message.tool_call_id]
        assert "already waits for this work" in refusal[0].text


async def test_a_tree_grows_no_deeper_and_no_broader_than_its_limits(
    database_url: str,
) -> None:
    bounds = {"delegation": Delegation(max_depth=1, max_children=1)}
    catalog, script = agents_with_delegates(
        boss=ScriptedAgent(
            [turn(work_for("scout", id="c1"), work_for("scout", id="c2")), turn("Done.")],
            delegates=["scout"],
            more=bounds,
        ),
        scout=ScriptedAgent(
            [turn(work_for("digger")), turn("Blue.")], delegates=["digger"], more=bounds
        ),
        digger=ScriptedAgent([]),
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.ended()
        below = await records_below(replica, run)
        assert [record.agent_id for record in below] == ["scout"]


async def test_a_child_deleted_after_its_end_leaves_only_its_answer(
    database_url: str,
) -> None:
    catalog, script = agents_with_delegates(
        boss=ScriptedAgent(
            LEAD.turns, delegates=["scout"], more={"delegation": Delegation(keep=False)}
        ),
        scout=ScriptedAgent([turn("Blue.")]),
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        emitted = await run.ended()
        assert emitted[-1]["result"]["response"] == "It is blue."

        await until_children_are_deleted(run)
        assert await replica.database.pool.fetchval("SELECT count(*) FROM threads") == 1


async def test_a_child_to_be_deleted_is_deleted_even_if_the_followup_is_lost(
    database_url: str,
) -> None:
    gate = Gate()
    catalog, script = agents_with_delegates(
        boss=ScriptedAgent(
            LEAD.turns, delegates=["scout"], more={"delegation": Delegation(keep=False)}
        ),
        scout=ScriptedAgent([turn(gate, "Blue.")]),
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await gate.reached.wait()
        await replica.take_nothing_new()
        gate.open.set()
        [child] = await children_of(run)
        await child.ended()
        [report] = await overdue(replica)
        assert report.kind is FollowupKind.REPORT_TO_PARENT
        assert await run_child_followup(replica.ctx, report)
        await lose_followups(replica)
        [forget] = await overdue(replica)
        assert forget.kind is FollowupKind.DELETE
        assert await run_child_followup(replica.ctx, forget)
        assert await children_of(run) == []
        assert await overdue(replica) == []


async def test_the_deletion_of_a_child_is_queued_once_however_often_it_is_found(
    database_url: str,
) -> None:
    catalog, script = agents_with_delegates(boss=ScriptedAgent([turn("Done.")]))
    async with open_replica(database_url, catalog, script) as replica:
        await replica.take_nothing_new()
        about = ChildFollowup(
            kind=FollowupKind.DELETE,
            tenant=ANN.tenant,
            parent_run_id=RunId(new_id()),
            child_run_id=RunId(new_id()),
        )
        for _ in range(2):
            async with replica.database.transaction() as connection:
                await deliveries.enqueue_followup(connection, about)
        queued = await replica.database.pool.fetchval(
            "SELECT count(*) FROM pgq.pgqueuer WHERE entrypoint = 'followup'"
        )
        assert queued == 1


async def test_only_the_end_of_the_child_answers_its_ticket_but_the_call_can_be_cancelled(
    database_url: str,
) -> None:
    gate = Gate()
    catalog, script = agents_with_delegates(boss=LEAD, scout=ScriptedAgent([turn(gate, "Blue.")]))
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await gate.reached.wait()
        [ticket] = await run.tickets()
        with pytest.raises(Invalid) as refused:
            await run.decide(ticket.name, "respond", result="Red.")
        assert refused.value.code == "action_not_allowed"
        await run.decide(ticket.name, "cancel", reason="never mind")
        emitted = await run.ended()
        assert emitted[-1]["result"]["response"] == "It is blue."
        [child] = await children_of(run)
        await child.ended()
        state = (await child.now()).state
        assert isinstance(state, Done)
        assert isinstance(state.termination, Cancelled)


async def test_a_tree_survives_the_loss_of_the_worker_of_all_its_runs(database_url: str) -> None:
    gate = Gate()
    catalog, script = agents_with_delegates(
        boss=LEAD, scout=ScriptedAgent([turn(gate, "Lost."), turn("Blue.")])
    )
    async with (
        open_replica(database_url, catalog, script) as first,
        open_replica(database_url, catalog, script) as second,
    ):
        run = await first.start(here=True)
        await gate.reached.wait()
        gate.open.set()
        await first.kill()
        run = second.same(run)
        await run.ended()
        assert (await run.now()).status is RunStatus.DONE
        [child] = await children_of(run)
        state = (await child.now()).state
        assert isinstance(state, Done)
        assert state.termination == NaturalEnd()


async def test_a_parent_shows_what_its_children_wait_for(database_url: str) -> None:
    probe = Probe()
    catalog, script = agents_with_delegates(
        boss=LEAD,
        scout=ScriptedAgent([turn(work_for("digger")), turn("Blue.")], delegates=["digger"]),
        digger=cautious(probe, turn("Dug.")),
    )
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        [child] = await family_of(run, 1)
        [grandchild] = await family_of(child, 1)
        await grandchild.finished()
        [waiting_reasons] = await grandchild.tickets()
        found = await explain(replica.ctx, ANN, run.id)
        assert [reason.code for reason in found.reasons] == [ReasonCode.WAITING_FOR_CHILDREN]
        assert "1 of whose tickets is open" in found.reasons[0].text
        assert [ticket.id for ticket in found.waiting_on] == [waiting_reasons.id]
        assert [(below.agent_id, below.lineage.depth) for below in found.descendants] == [
            ("scout", 1),
            ("digger", 2),
        ]
        await opened_below(run, 1)
        shown = run_out(await records.read_run(replica.ctx, ANN, run.id)).model_dump()["waiting"]
        assert shown["needs_decision"]
        assert [each["run_id"] for each in shown["tickets"]] == [run.id, grandchild.id]
        listed = await inbox.list_tickets(replica.ctx, ANN, TicketFilter(), PageRequest())
        assert [each.ticket.id for each in listed] == [waiting_reasons.id]
        await grandchild.decide(waiting_reasons.name, "approve")
        await run.ended()
