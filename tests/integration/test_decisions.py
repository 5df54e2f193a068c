"""Decisions of people: each takes effect once, whenever it arrives, and undecided calls wait."""

import asyncio

import pytest

from app.domain.errors import Conflict, Gone, Invalid, NotFound
from app.domain.ids import CallId
from app.domain.runs.runs import RunStatus, Waiting, WaitingReason
from app.domain.tickets.tickets import TicketKind, TicketStatus
from app.llm.scripted.model import Call, in_order, turn
from tests.support.finishes import asked_by
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


async def last_result(run: Run) -> str:
    """The text of the last tool result in the log."""
    return [entry.message.text for entry in await run.log() if entry.message.tool_call_id][-1]


async def test_a_call_that_needs_approval_waits_and_runs_once_approved(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn("I will.", probe.call("c1", "this")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        run = await replica.start()
        emitted = await run.finished()
        record = await run.now()
        [ticket] = await run.tickets()
        assert types_of(emitted)[-6:] == [
            "tool_call_done",
            "ticket_opened",
            "state_snapshot",
            "step_end",
            "state_snapshot",
            "run_finish",
        ]
        assert record.state == Waiting(WaitingReason.TOOL_PERMISSION, "suspended")
        assert asked_by(emitted[-1]) == [ticket.name] == ["perm_c1"]
        assert (ticket.kind, ticket.status) == (TicketKind.APPROVAL, TicketStatus.OPEN)
        assert await run.calls() == {"c1": "suspended"}
        assert replica.worker.executing == 0
        assert probe.handed == []

        await run.decide("perm_c1", "approve")
        emitted = await run.finished(2)
        [ticket] = await run.tickets()
        assert ticket.status is TicketStatus.DECIDED
        assert ticket.applied_at is not None
        assert await run.calls() == {}
    assert [handed.text for handed in probe.handed] == ["this"]
    second = emitted[types_of(emitted).index("ticket_decided") :]
    assert types_of(second)[:4] == [
        "ticket_decided",
        "run_start",
        "tool_call_resumed",
        "step_start",
    ]
    assert second[2] == {
        **second[2],
        "tool_call_id": "c1",
        "result": {"status": "done", "outcome": "succeeded", "text": "probe did this"},
    }
    shown = [m.text for m in script.requests[1].messages if m.tool_call_id]
    assert shown == ["probe did this"]


@pytest.mark.parametrize(
    "action, more, handed, result_text, outcome, data",
    [
        ("approve", {}, ["this"], "probe did this", "succeeded", None),
        ("edit", {"arguments": {"text": "that"}}, ["that"], "probe did that", "succeeded", None),
        ("respond", {"result": {"n": 1}}, [], '{"n":1}', "succeeded", {"n": 1}),
        ("respond", {"result": {"error": "no"}}, [], "no", "failed", None),
        ("reject", {"reason": "no way"}, [], "Denied: no way", "failed", None),
        ("cancel", {"reason": "never mind"}, [], "never mind", "cancelled", None),
        ("cancel", {"result": {"n": 1}}, [], '{"n":1}', "cancelled", {"n": 1}),
        ("cancel", {}, [], "null", "cancelled", None),
    ],
)
async def test_each_decision_has_its_documented_effect(
    database_url: str,
    action: str,
    more: dict[str, object],
    handed: list[str],
    result_text: str,
    outcome: str,
    data: object,
) -> None:
    probe = Probe()
    script = in_order(turn(probe.call("c1", "this")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("perm_c1", action, **more)
        emitted = await run.finished(2)
        assert emitted[-1]["termination"] == {"type": "natural_end"}
        assert await last_result(run) == result_text
        asked = (await run.log())[1].message.tool_calls[0]
    assert [one.text for one in probe.handed] == handed
    shown: dict[str, object] = {"status": "done", "outcome": outcome, "text": result_text}
    shown |= {} if data is None else {"data": data}
    assert of_type(emitted, "tool_call_resumed")[0]["result"] == shown
    assert asked.arguments == {"text": "this"}
    if action == "edit":
        assert script.requests[1].messages[1].tool_calls[0].arguments == {"text": "that"}


async def test_a_tool_that_suspends_gets_the_answer(database_url: str) -> None:
    probe = Probe(asks=1)
    script = in_order(turn(probe.call("c1", "this")), turn("done"))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        assert asked_by(emitted[-1]) == ["c1"]
        [ticket] = await run.tickets()
        assert (ticket.kind, ticket.reason, ticket.message) == (
            TicketKind.INPUT,
            "ask",
            "Question 1?",
        )
        await run.decide("c1", "approve", result="yes")
        await run.finished(2)
        assert await last_result(run) == "probe did this"
    assert [handed.resume_input for handed in probe.handed] == [None, "yes"]
    assert len({handed.idempotency_key for handed in probe.handed}) == 1


async def test_a_tool_may_suspend_again(database_url: str) -> None:
    probe = Probe(asks=2)
    script = in_order(turn(probe.call("c1")), turn("done"))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("c1", "approve", result="one")
        emitted = await run.finished(2)
        # A new question has a new name, so the first decision sent again doesn't answer it.
        assert asked_by(emitted[-1]) == ["c1:2"]
        first, second = await run.tickets()
        assert (first.status, second.status) == (TicketStatus.DECIDED, TicketStatus.OPEN)
        assert (await run.decide("c1", "approve", result="one")).results[0].is_duplicate
        await run.decide("c1:2", "approve", result="two")
        emitted = await run.finished(3)
    assert [handed.resume_input for handed in probe.handed] == [None, "one", "two"]
    assert len(of_type(emitted, "tool_call_resumed")) == 1


async def test_undecided_calls_keep_waiting(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn(probe.call("c1", "a"), probe.call("c2", "b")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("perm_c2", "approve")
        emitted = await run.finished(2)
        assert asked_by(emitted[-1]) == ["perm_c1"]
        assert await run.calls() == {"c1": "suspended", "c2": "succeeded"}
        assert len(script.requests) == 1
        await run.decide("perm_c1", "reject", reason="no")
        await run.finished(3)
    shown = [m.text for m in script.requests[1].messages if m.tool_call_id]
    assert shown == ["Denied: no", "probe did b"]
    assert [handed.text for handed in probe.handed] == ["b"]


async def test_answers_of_one_batch_are_applied_together(database_url: str) -> None:
    probe = Probe()
    calls = [probe.call(f"c{n}", str(n)) for n in range(4)]
    script = in_order(turn(*calls), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        decided = await run.decide_all(
            decision("perm_c0", "approve"),
            decision("perm_c1", "reject", reason="no"),
            decision("perm_c2", "cancel", reason="off"),
            decision("perm_c3", "edit", arguments={"text": "x"}),
        )
        assert decided.open_tickets == ()
        emitted = await run.finished(2)
    assert [handed.text for handed in probe.handed] == ["0", "x"]
    resumed = [one["tool_call_id"] for one in of_type(emitted, "tool_call_resumed")]
    assert resumed == ["c2", "c0", "c1", "c3"]


async def test_a_decision_that_arrives_while_another_is_applied_is_applied_too(
    database_url: str,
) -> None:
    probe = Probe(held=True)
    script = in_order(turn(probe.call("c1", "a"), probe.call("c2", "b")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("perm_c1", "approve")
        await probe.was_reached()
        decided = await run.decide("perm_c2", "approve")
        assert decided.run.status is RunStatus.RUNNING
        probe.open.set()
        emitted = await run.finished(2)
        assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert [handed.text for handed in probe.handed] == ["a", "b"]


async def test_questions_of_two_calls_with_the_same_name_get_separate_tickets(
    database_url: str,
) -> None:
    probe = Probe(asks=2, named="confirm")
    script = in_order(turn(probe.call("c1"), probe.call("c2")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide_all(decision("perm_c1", "approve"), decision("perm_c2", "approve"))
        emitted = await run.finished(2)
        assert asked_by(emitted[-1]) == ["confirm", "confirm:c2"]


async def test_a_repeated_decision_gets_the_same_answer(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn(probe.call("c1")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        first = await run.decide("perm_c1", "approve")
        await run.finished(2)
        again = await run.decide("perm_c1", "approve")
        assert (first.results[0].is_duplicate, again.results[0].is_duplicate) == (False, True)
        assert again.results[0].decision == first.results[0].decision
        with pytest.raises(Conflict) as refused:
            await run.decide("perm_c1", "reject")
        assert refused.value.code == "ticket_already_decided"
        assert refused.value.facts["winner"]["action"] == "approve"
    assert len(probe.handed) == 1


async def test_of_many_concurrent_decisions_one_wins(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn(probe.call("c1")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        answers = await asyncio.gather(
            *(run.decide("perm_c1", "respond", result=n) for n in range(8)), return_exceptions=True
        )
        refused = [answer for answer in answers if isinstance(answer, Conflict)]
        assert len(refused) == 7
        [winner] = [answer for answer in answers if not isinstance(answer, BaseException)]
        await run.finished(2)
        result_text = await last_result(run)
        assert result_text == str(winner.results[0].decision.answer.result)
        assert {refusal.facts["winner"]["id"] for refusal in refused} == {
            winner.results[0].decision.decision_id
        }


async def test_a_batch_with_one_invalid_decision_changes_nothing(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn(probe.call("c1"), probe.call("c2")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        run = await replica.start()
        emitted = await run.finished()
        for wrong in (
            decision("perm_c9", "approve"),
            decision("perm_c2", "edit", arguments={"text": 5}),
            decision("c1", "approve"),
        ):
            with pytest.raises((NotFound, Invalid)):
                await run.decide_all(decision("perm_c1", "approve"), wrong)
        assert {ticket.status for ticket in await run.tickets()} == {TicketStatus.OPEN}
        assert (await run.now()).status is RunStatus.WAITING
        assert await run.finished() == emitted


async def test_a_ticket_of_a_finished_run_is_void(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn(probe.call("c1")))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        await run.cancel()
        with pytest.raises(Gone) as refused:
            await run.decide("perm_c1", "approve")
        assert refused.value.code == "ticket_void"
    assert probe.handed == []


async def test_a_call_whose_tool_now_refuses_its_arguments_gets_an_error(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn(Call(tool="probe", id=CallId("c1"))), turn("done"))
    agent = an_agent(probe.tool, approval=["probe"])
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        await replica.database.pool.execute("""UPDATE tool_calls SET arguments = '{"text": 1}'""")
        await run.decide("perm_c1", "approve")
        await run.finished(2)
        assert (await last_result(run)).startswith("Invalid arguments: ")
    assert probe.handed == []


async def test_a_suspended_run_is_finished_by_another_replica(database_url: str) -> None:
    probe = Probe(asks=1)
    agent = an_agent(probe.tool)
    async with open_replica(database_url, agent, in_order(turn(probe.call("c1")))) as first:
        run = await first.start()
        await run.finished()
    script = in_order(turn("done"))
    async with open_replica(database_url, agent, script) as second:
        run = second.same(run)
        await run.decide("c1", "approve", result="yes")
        emitted = await run.finished(2)
        assert emitted[-1]["termination"] == {"type": "natural_end"}
        assert texts_of(await run.log())[-2:] == [("tool", "probe did it"), ("assistant", "done")]
    assert [handed.resume_input for handed in probe.handed] == [None, "yes"]


async def test_open_tickets_stay_open_after_a_restart(database_url: str) -> None:
    probe = Probe()
    agent = an_agent(probe.tool, approval=["probe"])
    calls = [probe.call(f"c{n}", str(n)) for n in range(4)]
    async with open_replica(database_url, agent, in_order(turn(*calls))) as first:
        run = await first.start()
        await run.finished()
        await run.decide_all(decision("perm_c0", "approve"), decision("perm_c3", "reject"))
        emitted = await run.finished(2)
        before = await run.tickets()
        assert asked_by(emitted[-1]) == ["perm_c1", "perm_c2"]
    script = in_order(turn("done"))
    async with open_replica(database_url, agent, script) as second:
        run = second.same(run)
        assert await run.tickets() == before
        await run.decide("perm_c2", "cancel", reason="off")
        emitted = await run.finished(3)
        assert asked_by(emitted[-1]) == ["perm_c1"]
        await run.decide("perm_c1", "approve")
        emitted = await run.finished(4)
        assert emitted[-1]["termination"] == {"type": "natural_end"}
    shown = [m.text for m in script.requests[0].messages if m.tool_call_id]
    assert shown == ["probe did 0", "probe did 1", "off", "Denied: a person rejected this call"]
    assert [handed.text for handed in probe.handed] == ["0", "1"]
