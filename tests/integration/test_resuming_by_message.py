"""A message that resumes a run: who may send it, which tickets it answers, and which it cannot."""

import pytest

from app.clock import new_id
from app.commands.inputs.send import AcceptedInput, InputMode, InputRequest, ToRun, send_input
from app.domain.agents.specs import ToolExecution
from app.domain.errors import Conflict, Forbidden, Invalid
from app.domain.ids import MessageId
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import RunStatus
from app.domain.threads.messages import Media, Message, Role, Text, UrlSource
from app.domain.tickets.terms import ApproverRule
from app.domain.tickets.tickets import TicketStatus
from app.llm.scripted.model import in_order, turn
from tests.support.invariants import broken_invariants
from tests.support.probes import Probe
from tests.support.replicas import ANN, Run, an_agent, of_type, open_replica, texts_of

pytestmark = pytest.mark.anyio

PICTURE = Media("image", UrlSource("https://example.org/it.png"))


async def send_answer(run: Run, *content: Text | Media, by: Principal = ANN) -> AcceptedInput:
    message = Message(id=MessageId(new_id()), role=Role.USER, content=content)
    request = InputRequest(messages=(message,), mode=InputMode.RESUME_OPEN_RUN)
    return await send_input(run.replica.ctx, by, ToRun(run.id), request, deliver=False)


async def is_unchanged(run: Run, tickets: int) -> bool:
    """The run still waits, its tickets are open, and it has no new input."""
    record = await run.now()
    return (
        record.status is RunStatus.WAITING
        and record.unread_inputs == 0
        and [ticket.status for ticket in await run.tickets()] == [TicketStatus.OPEN] * tickets
    )


async def test_an_answer_by_message_is_delivered_if_its_process_dies_after_the_commit(
    database_url: str,
) -> None:
    """The message is committed and no delivery was queued, so the sweeper delivers the run."""
    probe = Probe(asks=1)
    script = in_order(turn(probe.call("c1")), turn("I see."))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        await run.finished()
        accepted = await send_answer(run, Text("the savings one"))
        assert accepted.to_claim is not None
        emitted = await run.ended()
        log = texts_of(await run.log())
    assert len(probe.handed) == 1
    assert log.count(("user", "the savings one")) == 1
    assert log[-2:] == [("tool", "the savings one"), ("assistant", "I see.")]
    assert len(of_type(emitted, "input_delivered")) == 1
    assert await broken_invariants(database_url) == {}


async def test_a_message_cannot_answer_one_of_two_questions(database_url: str) -> None:
    probe = Probe(asks=2)
    catalog = an_agent(probe.tool, tool_execution=ToolExecution.PARALLEL)
    script = in_order(turn(probe.call("c1"), probe.call("c2")))
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.finished()
        with pytest.raises(Conflict) as refused:
            await send_answer(run, Text("the savings one"))
        assert refused.value.code == "decisions_needed"
        assert len(refused.value.facts["tickets"]) == 2
        assert await is_unchanged(run, 2)


async def test_a_message_cannot_answer_a_ticket_with_an_approver_rule(database_url: str) -> None:
    probe = Probe(asks=1)
    catalog = an_agent(probe.tool, approvers={"probe": ApproverRule(not_starter=True)})
    async with open_replica(database_url, catalog, in_order(turn(probe.call("c1")))) as replica:
        run = await replica.start()
        await run.finished()
        with pytest.raises(Conflict) as refused:
            await send_answer(run, Text("me"))
        assert refused.value.code == "decisions_needed"
        assert await is_unchanged(run, 1)


async def test_answering_a_question_by_message_needs_the_scope_to_decide(database_url: str) -> None:
    probe = Probe(asks=1)
    async with open_replica(
        database_url, an_agent(probe.tool), in_order(turn(probe.call("c1")))
    ) as replica:
        run = await replica.start()
        await run.finished()
        writer = Principal(ANN.tenant, "bob", frozenset({Scope.RUNS_WRITE}))
        with pytest.raises(Forbidden):
            await send_answer(run, Text("the savings one"), by=writer)
        assert await is_unchanged(run, 1)


async def test_a_message_without_text_answers_no_question(database_url: str) -> None:
    probe = Probe(asks=1)
    async with open_replica(
        database_url, an_agent(probe.tool), in_order(turn(probe.call("c1")))
    ) as replica:
        run = await replica.start()
        await run.finished()
        with pytest.raises(Invalid) as refused:
            await send_answer(run, PICTURE)
        assert refused.value.code == "answer_without_text"
        assert await is_unchanged(run, 1)
