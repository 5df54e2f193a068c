"""Agents as tools: a child is a run of its own, its parent waits at no cost, and they end together."""

import pytest

from app.api.schemas.runs import run_out
from app.clock import new_id
from app.commands.followups.child_runs import run_child_followup
from app.domain.agents.specs import Delegation
from app.domain.children.followups import ChildFollowup, FollowupKind
from app.domain.errors import Invalid
from app.domain.events.run_events import ActivitySnapshot
from app.domain.ids import RunId
from app.domain.runs.runs import Done, RunStatus, Waiting, WaitingReason
from app.domain.runs.terminations import Cancelled, NaturalEnd
from app.domain.tickets.tickets import TicketFilter, TicketKind
from app.llm.scripted.model import Gate, turn
from app.queries import inbox, records
from app.queries.explain import ReasonCode, explain
from app.storage.queue import deliveries
from tests.support.conditions import eventually
from tests.support.families import (
    Member,
    cautious,
    children_forgotten,
    children_of,
    family,
    family_of,
    lose_errands,
    overdue,
    records_below,
    work_for,
)
from tests.support.house import ANN, of_type, replica, texts_of
from tests.support.probes import Probe

pytestmark = pytest.mark.anyio

LEAD = Member([turn(work_for("scout")), turn("It is blue.")], delegates=["scout"])


async def test_the_answer_of_a_child_is_the_result_of_the_call(database_url: str) -> None:
    catalog, script = family(boss=LEAD, scout=Member([turn("Blue.")]))
    async with replica(database_url, catalog, script) as house:
        run = await house.start("what colour?")
        said = await run.ended()
        assert said[-1]["result"]["response"] == "It is blue."
        [child] = await children_of(run)
        lineage = (await child.now()).lineage
        assert (lineage.parent_run_id, lineage.root_run_id, lineage.depth) == (run.id, run.id, 1)
        assert texts_of(await child.log()) == [("user", "look it up"), ("assistant", "Blue.")]
        result = of_type(said, "tool_call_resumed")[0]["result"]["data"]
        assert result["response"] == "Blue."
        assert result["status"] == "completed"


async def test_while_a_child_works_its_parent_holds_nothing(database_url: str) -> None:
    gate = Gate()
    catalog, script = family(boss=LEAD, scout=Member([turn(gate, "Blue.")]))
    async with replica(database_url, catalog, script, slots=1) as house:
        run = await house.start()
        await gate.reached.wait()
        state = (await run.now()).state
        assert isinstance(state, Waiting)
        assert state.reason is WaitingReason.CHILD_RUNS
        gate.open.set()
        await run.ended()


async def test_a_parents_stream_shows_what_its_child_is_at(database_url: str) -> None:
    catalog, script = family(boss=LEAD, scout=Member([turn("Blue.")]))
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        said = await run.ended()
        shown = [
            event["content"]
            for event in of_type(said, ActivitySnapshot.event_type)
            if event["activity_type"] == "tool-call-progress"
        ]
        assert [each["status"] for each in shown] == ["running", "done"]
        [child] = await children_of(run)
        assert {each["child_run_id"] for each in shown} == {child.id}


async def test_children_work_side_by_side(database_url: str) -> None:
    gates = Gate(), Gate()
    catalog, script = family(
        boss=Member(
            [turn(work_for("scout", id="c1"), work_for("clerk", id="c2")), turn("Both agree.")],
            delegates=["scout", "clerk"],
        ),
        scout=Member([turn(gates[0], "Blue.")]),
        clerk=Member([turn(gates[1], "Blue, too.")]),
    )
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        for gate in gates:
            await gate.reached.wait()
        for gate in gates:
            gate.open.set()
        said = await run.ended()
        assert said[-1]["result"]["response"] == "Both agree."
        answers = {
            event["target_id"]: event["result"]["data"]["response"]
            for event in of_type(said, "tool_call_resumed")
        }
        assert answers == {"c1": "Blue.", "c2": "Blue, too."}


async def test_a_cancel_goes_down_the_tree(database_url: str) -> None:
    gate = Gate()
    catalog, script = family(
        boss=LEAD,
        scout=Member([turn(work_for("digger"))], delegates=["digger"]),
        digger=Member([turn(gate, "Never.")]),
    )
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        await gate.reached.wait()
        await run.cancel("enough")

        async def all_over() -> bool:
            tree = [await run.now(), *await records_below(house, run)]
            return len(tree) == 3 and all(record.is_done for record in tree)

        await eventually(all_over)
        for record in await records_below(house, run):
            assert isinstance(record.state, Done)
            assert isinstance(record.state.termination, Cancelled)


async def test_a_childs_ticket_is_in_the_inbox_and_its_parent_goes_on_once_it_is_answered(
    database_url: str,
) -> None:
    probe = Probe()
    catalog, script = family(
        boss=LEAD,
        scout=cautious(probe, turn("Blue.")),
    )
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        [child] = await family_of(run, 1)
        await child.finished()
        [asked] = await child.tickets()
        assert asked.kind is TicketKind.APPROVAL
        shown = of_type(await run.until("activity_snapshot", 2), "activity_snapshot")
        assert shown[-1]["content"]["status"] == "pending"
        await child.decide(asked.name, "approve")
        said = await run.ended()
        assert said[-1]["result"]["response"] == "It is blue."


async def test_a_child_that_fails_is_an_error_that_the_model_reads(database_url: str) -> None:
    catalog, script = family(boss=LEAD, scout=Member([]))
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        await run.ended()
        results = [entry.message for entry in await run.log() if entry.message.tool_call_id]
        assert "failed" in results[-1].text


async def test_nobody_is_given_work_that_waits_for_it(database_url: str) -> None:
    catalog, script = family(
        boss=LEAD,
        scout=Member([turn(work_for("boss")), turn("Blue.")], delegates=["boss"]),
    )
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        said = await run.ended()
        assert said[-1]["result"]["response"] == "It is blue."
        assert len(await records_below(house, run)) == 1
        [child] = await children_of(run)
        refusal = [entry.message for entry in await child.log() if entry.message.tool_call_id]
        assert "waits for this very work" in refusal[0].text


async def test_a_tree_grows_no_deeper_and_no_broader_than_its_agent_says(
    database_url: str,
) -> None:
    bounds = {"delegation": Delegation(max_depth=1, max_children=1)}
    catalog, script = family(
        boss=Member(
            [turn(work_for("scout", id="c1"), work_for("scout", id="c2")), turn("Done.")],
            delegates=["scout"],
            more=bounds,
        ),
        scout=Member([turn(work_for("digger")), turn("Blue.")], delegates=["digger"], more=bounds),
        digger=Member([]),
    )
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        await run.ended()
        below = await records_below(house, run)
        assert [record.agent_id for record in below] == ["scout"]


async def test_a_child_that_isnt_to_be_kept_leaves_nothing_but_its_answer(
    database_url: str,
) -> None:
    catalog, script = family(
        boss=Member(LEAD.turns, delegates=["scout"], more={"delegation": Delegation(keep=False)}),
        scout=Member([turn("Blue.")]),
    )
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        said = await run.ended()
        assert said[-1]["result"]["response"] == "It is blue."

        await children_forgotten(run)
        assert await house.database.pool.fetchval("SELECT count(*) FROM threads") == 1


async def test_a_child_that_isnt_to_be_kept_is_removed_even_when_the_errand_is_lost(
    database_url: str,
) -> None:
    gate = Gate()
    catalog, script = family(
        boss=Member(LEAD.turns, delegates=["scout"], more={"delegation": Delegation(keep=False)}),
        scout=Member([turn(gate, "Blue.")]),
    )
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        await gate.reached.wait()
        await house.take_nothing_new()
        gate.open.set()
        [child] = await children_of(run)
        await child.ended()
        [tell] = await overdue(house)
        assert tell.kind is FollowupKind.REPORT_TO_PARENT
        assert await run_child_followup(house.ctx, tell)
        await lose_errands(house)
        [forget] = await overdue(house)
        assert forget.kind is FollowupKind.FORGET
        assert await run_child_followup(house.ctx, forget)
        assert await children_of(run) == []
        assert await overdue(house) == []


async def test_however_often_a_child_is_found_that_is_to_be_removed_it_is_queued_once(
    database_url: str,
) -> None:
    catalog, script = family(boss=Member([turn("Nobody.")]))
    async with replica(database_url, catalog, script) as house:
        await house.take_nothing_new()
        about = ChildFollowup(
            kind=FollowupKind.FORGET,
            tenant=ANN.tenant,
            parent_run_id=RunId(new_id()),
            child_run_id=RunId(new_id()),
        )
        for _ in range(2):
            async with house.database.transaction() as connection:
                await deliveries.enqueue_followup(connection, about)
        queued = await house.database.pool.fetchval(
            "SELECT count(*) FROM pgq.pgqueuer WHERE entrypoint = 'errand'"
        )
        assert queued == 1


async def test_only_the_childs_end_answers_for_it_but_the_call_can_be_taken_back(
    database_url: str,
) -> None:
    gate = Gate()
    catalog, script = family(boss=LEAD, scout=Member([turn(gate, "Blue.")]))
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        await gate.reached.wait()
        [ticket] = await run.tickets()
        with pytest.raises(Invalid) as refused:
            await run.decide(ticket.name, "respond", result="Red.")
        assert refused.value.code == "action_not_allowed"
        await run.decide(ticket.name, "cancel", reason="never mind")
        said = await run.ended()
        assert said[-1]["result"]["response"] == "It is blue."
        [child] = await children_of(run)
        await child.ended()
        state = (await child.now()).state
        assert isinstance(state, Done)
        assert isinstance(state.termination, Cancelled)


async def test_a_tree_survives_the_worker_of_all_its_runs(database_url: str) -> None:
    gate = Gate()
    catalog, script = family(boss=LEAD, scout=Member([turn(gate, "Lost."), turn("Blue.")]))
    async with (
        replica(database_url, catalog, script) as first,
        replica(database_url, catalog, script) as second,
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


async def test_a_parent_tells_what_its_children_wait_for(database_url: str) -> None:
    probe = Probe()
    catalog, script = family(
        boss=LEAD,
        scout=Member([turn(work_for("digger")), turn("Blue.")], delegates=["digger"]),
        digger=cautious(probe, turn("Dug.")),
    )
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        [child] = await family_of(run, 1)
        [grandchild] = await family_of(child, 1)
        await grandchild.finished()
        [asked] = await grandchild.tickets()
        found = await explain(house.ctx, ANN, run.id)
        assert [reason.code for reason in found.reasons] == [ReasonCode.WAITING_FOR_CHILDREN]
        assert "1 of whose tickets are open" in found.reasons[0].text
        assert [ticket.id for ticket in found.waiting_on] == [asked.id]
        assert [(below.agent_id, below.lineage.depth) for below in found.descendants] == [
            ("scout", 1),
            ("digger", 2),
        ]
        shown = run_out(await records.read_run(house.ctx, ANN, run.id)).waiting or {}
        assert [each["run_id"] for each in shown["tickets_of_children"]] == [grandchild.id]
        listed = await inbox.list_tickets(house.ctx, ANN, TicketFilter(), before=None, limit=10)
        assert [ticket.id for ticket in listed] == [asked.id]
        await grandchild.decide(asked.name, "approve")
        await run.ended()
