"""Decisions about suspended calls: repeated, concurrent, late, and from clients that execute tools."""

import pytest

from app.domain.errors import Refusal
from app.domain.ids import CallId
from app.domain.runs.runs import RunStatus
from app.domain.tickets.tickets import TicketStatus
from app.llm.scripted.model import Call, in_order, turn
from tests.support.probes import Probe
from tests.support.replicas import an_agent, of_type, open_replica, texts_of

pytestmark = pytest.mark.anyio

PICKER = {"name": "pick", "description": "Picks.", "parameters": {"type": "object"}}


async def test_single_tool_call_can_suspend_multiple_times_via_decision_channel(
    database_url: str,
) -> None:
    probe = Probe(asks=2)
    script = in_order(turn(probe.call("c1")), turn("done"))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        for count, answer in enumerate(("first", "second"), 1):
            await run.finished(count)
            [ticket] = [each for each in await run.tickets() if each.status is TicketStatus.OPEN]
            await run.decide(ticket.name, "approve", reason=answer)
        emitted = await run.ended()
        tickets = await run.tickets()
    assert len(probe.handed) == 3
    assert len({ticket.name for ticket in tickets}) == 2
    assert [event["result"]["text"] for event in of_type(emitted, "tool_call_resumed")] == [
        "probe did it"
    ]


async def test_concurrent_suspend_and_resume_via_channel(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn(probe.call("c1"), probe.call("c2")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        run = await replica.start()
        await run.until("ticket_opened", 2)
        await run.decide("perm_c2", "approve")
        await run.decide("perm_c1", "approve")
        emitted = await run.ended()
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert sorted(handed.call_id for handed in probe.handed) == ["c1", "c2"]


async def test_decision_channel_rejects_illegal_transition(database_url: str) -> None:
    """The reference has forgotten the call by then; Holdfast answers 409 with the winner."""
    probe = Probe()
    script = in_order(turn(probe.call("c1")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("perm_c1", "approve")
        await run.ended()
        with pytest.raises(Refusal) as refused:
            await run.decide("perm_c1", "reject")
    assert refused.value.code == "ticket_already_decided"
    assert len(probe.handed) == 1


async def test_injected_frontend_tool_uses_suspension_id_resume_chain(database_url: str) -> None:
    script = in_order(turn(Call(tool="pick", arguments={}, id=CallId("c1"))), turn("done"))
    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start(frontend_tools=[PICKER])
        await run.finished()
        await run.decide("suspend_c1", "respond", result={"picked": 3})
        emitted = await run.ended()
        log = await run.log()
    assert of_type(emitted, "tool_call_resumed")[0]["result"]["data"] == {"picked": 3}
    assert texts_of(log)[-2:] == [("tool", '{"picked":3}'), ("assistant", "done")]


async def test_prepare_resume_preserves_arguments_and_records_decision_payload(
    database_url: str,
) -> None:
    probe = Probe()
    script = in_order(turn(probe.call("c1", "this")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("perm_c1", "edit", arguments={"text": "that"})
        await run.ended()
        [ticket] = await run.tickets()
        [asked] = [entry.message for entry in await run.log() if entry.message.tool_calls]
    assert asked.tool_calls[0].arguments == ticket.arguments == {"text": "this"}
    assert ticket.decision is not None
    assert ticket.decision.answer.arguments == {"text": "that"}
    assert [handed.text for handed in probe.handed] == ["that"]


async def test_new_user_message_supersedes_suspended_calls_but_keeps_completed_results(
    database_url: str,
) -> None:
    """The reference strips suspended calls from the log; Holdfast keeps the log.

    To use the thread, cancel the run: finished calls keep their results, suspended ones are marked as interrupted.
    """
    done, risky = Probe(name="done"), Probe(name="risky")
    script = in_order(turn(done.call("c1"), risky.call("c2")), turn("next"))
    agent = an_agent(done.tool, risky.tool, approval=["risky"])
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        behind = await replica.start(thread_id=run.thread_id)
        assert (await behind.now()).status is RunStatus.CREATED
        await run.cancel()
        await behind.ended()
        log = await behind.log()
    assert texts_of(log)[-1] == ("assistant", "next")
    assert ("tool", "done did it") in texts_of(log)
    assert (len(done.handed), len(risky.handed)) == (1, 0)
