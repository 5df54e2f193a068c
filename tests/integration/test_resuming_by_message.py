"""A message that lets a run go on: whom it takes, what it answers, and what it never does."""

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
from tests.support.house import ANN, Run, an_agent, of_type, replica, texts_of
from tests.support.invariants import broken_invariants
from tests.support.probes import Probe

pytestmark = pytest.mark.anyio

PICTURE = Media("image", UrlSource("https://example.org/it.png"))


async def tell(run: Run, *content: Text | Media, by: Principal = ANN) -> AcceptedInput:
    message = Message(id=MessageId(new_id()), role=Role.USER, content=content)
    request = InputRequest(messages=(message,), mode=InputMode.RESUME_OPEN_RUN)
    return await send_input(run.replica.ctx, by, ToRun(run.id), request, deliver=False)


async def still_waits(run: Run, tickets: int) -> bool:
    """Nothing has become of it."""
    record = await run.now()
    return (
        record.status is RunStatus.WAITING
        and record.unread_inputs == 0
        and [ticket.status for ticket in await run.tickets()] == [TicketStatus.OPEN] * tickets
    )


async def test_who_dies_over_an_answer_in_words_is_made_up_for(database_url: str) -> None:
    """It is committed, and nobody has woken the run for it."""
    probe = Probe(asks=1)
    script = in_order(turn(probe.call("c1")), turn("I see."))
    async with replica(database_url, an_agent(probe.tool), script) as house:
        run = await house.start()
        await run.finished()
        accepted = await tell(run, Text("the savings one"))
        assert accepted.to_claim is not None
        said = await run.ended()
        log = texts_of(await run.log())
    assert len(probe.handed) == 1
    assert log.count(("user", "the savings one")) == 1
    assert log[-2:] == [("tool", "the savings one"), ("assistant", "I see.")]
    assert len(of_type(said, "input_delivered")) == 1
    assert await broken_invariants(database_url) == {}


async def test_which_of_two_questions_is_meant_no_message_says(database_url: str) -> None:
    probe = Probe(asks=2)
    catalog = an_agent(probe.tool, tool_execution=ToolExecution.PARALLEL)
    script = in_order(turn(probe.call("c1"), probe.call("c2")))
    async with replica(database_url, catalog, script) as house:
        run = await house.start()
        await run.finished()
        with pytest.raises(Conflict) as refused:
            await tell(run, Text("the savings one"))
        assert refused.value.code == "decisions_needed"
        assert len(refused.value.facts["tickets"]) == 2
        assert await still_waits(run, 2)


async def test_a_question_to_chosen_people_takes_their_decision(database_url: str) -> None:
    probe = Probe(asks=1)
    catalog = an_agent(probe.tool, approvers={"probe": ApproverRule(not_starter=True)})
    async with replica(database_url, catalog, in_order(turn(probe.call("c1")))) as house:
        run = await house.start()
        await run.finished()
        with pytest.raises(Conflict) as refused:
            await tell(run, Text("me"))
        assert refused.value.code == "decisions_needed"
        assert await still_waits(run, 1)


async def test_only_who_may_decide_answers_a_question(database_url: str) -> None:
    probe = Probe(asks=1)
    async with replica(
        database_url, an_agent(probe.tool), in_order(turn(probe.call("c1")))
    ) as house:
        run = await house.start()
        await run.finished()
        writer = Principal(ANN.tenant, "bob", frozenset({Scope.RUNS_WRITE}))
        with pytest.raises(Forbidden):
            await tell(run, Text("the savings one"), by=writer)
        assert await still_waits(run, 1)


async def test_a_picture_alone_answers_nothing(database_url: str) -> None:
    probe = Probe(asks=1)
    async with replica(
        database_url, an_agent(probe.tool), in_order(turn(probe.call("c1")))
    ) as house:
        run = await house.start()
        await run.finished()
        with pytest.raises(Invalid) as refused:
            await tell(run, PICTURE)
        assert refused.value.code == "answer_without_text"
        assert await still_waits(run, 1)
